/** A suggestion as the text that a person edits: pure. */
import { Document, type Node, type Pair, type YAMLMap, type YAMLSeq } from 'yaml';
import type { IFleetCutoverBlocker } from '../../contract/derivation.js';
import { printable } from '../terminal-text.js';
import { answerLists, type FileService, type IScopeFile, type TAnswerList } from './scope-file.js';
import type { Suggestion, TSection } from './suggestion.js';

export interface ScopeFileInformation {
  /** Volumes that no entry covers. */
  readonly volumes: readonly { readonly nodeId: string; readonly volumeName: string; readonly kind: string }[];
  readonly volumesLeftOut: number;
  /** Required anonymous volumes by owner. */
  readonly anonymous: readonly { readonly serviceId: string; readonly name: string; readonly count: number }[];
}

const header = (clusterId: string) => [
  ` The scope of cluster ${clusterId}, to be read and confirmed by a person.`,
  '',
  ' Everything with `confirmed: false` is a proposal of the program. It is not sent before you have set it to true, or have',
  ' deleted it: a service without an entry stays unclassified. What could not be told is null, and what only you can know the',
  ' reason of has none; setting every `confirmed` to true at once therefore confirms what is whole and nothing else.',
  '',
  '   check it    fleet-cutover scope apply FILE --dry-run',
  '   apply it    fleet-cutover scope apply FILE',
  '   refresh it  fleet-cutover scope suggest --cluster ID --from FILE --out FILE    keeps what you have written',
];

const sectionTitles: Readonly<Record<TSection, string>> = {
  open: 'To decide: what these are could not be told.',
  check:
    'To check: mounts that need a class, no owner, more than a plain application, or a scope that says otherwise now.',
  plain: 'Plain applications: nothing about them is unusual.',
  stated: 'Stated already, by the scope or in your file.',
};

const listTitles: Readonly<Record<TAnswerList, string>> = {
  overlapOwners: 'Of two keys on one source: the one owner. The other keys leave the required set.',
  overlapConfirmations: 'Other mounts of a required source that are known; they have to be gone before pallet.',
  dormantVolumes: 'Volumes that an application names and nothing mounts, and that may stay behind.',
  releasedEntries: 'Required entries that are let go: their data is not handed over.',
  releasedAnonymousVolumes: 'Services whose old anonymous volumes are let go, once no task uses them.',
};

export function scopeFileText(suggestion: Suggestion, information: ScopeFileInformation): string {
  const { file, notes, sections, unanswerable } = suggestion;
  const document = new Document(plain(file));
  const root = document.contents as unknown as YAMLMap<Node, Node>;
  document.commentBefore = [...header(printable(file.clusterId)), ...unansweredLines(unanswerable)].join('\n');
  const pairs = new Map(root.items.map((pair) => [String(pair.key), pair]));
  for (const name of ['runtime', 'inventory', 'expectedScope', 'coreflow']) {
    const value = pairs.get(name)?.value as (Node & { flow?: boolean }) | undefined;
    if (value !== undefined && value !== null) value.flow = true;
  }
  comment(pairs.get('runtime'), 'What this was made for. Do not edit it: `scope suggest --from` renews it.', true);
  comment(
    pairs.get('coreflow'),
    [
      'Yours alone: { state: classified } with one service of class coreflow, or { state: none, reason: … }.',
      ...(notes.has(file.coreflow) ? [notes.get(file.coreflow)] : []),
    ].join('\n'),
    true,
  );
  annotateServices(pairs.get('services')?.value as YAMLSeq<YAMLMap<Node, Node>>, file.services, sections, notes);
  for (const list of answerLists) {
    const pair = pairs.get(list);
    comment(pair, [listTitles[list], ...informationLines(list, information)].join('\n '), true);
    const items = (pair?.value as YAMLSeq<YAMLMap<Node, Node>>).items;
    file[list].forEach((answer, index) => comment(items[index], notes.get(answer)));
  }
  // No folding: a line of the file is one statement, and an error names it.
  return document.toString({ lineWidth: 0, flowCollectionPadding: true });
}

/** Members that say nothing are left out, so that a plain service is short. */
function plain(file: IScopeFile): object {
  return {
    ...file,
    services: file.services.map(
      ({ name, swarmServiceId, class: serviceClass, serviceId, reason, mounts, confirmed }) => ({
        ...(name === undefined ? {} : { name }),
        swarmServiceId,
        class: serviceClass,
        serviceId: serviceId ?? null,
        ...(serviceClass === 'excluded' || serviceClass === null || (reason ?? null) !== null
          ? { reason: reason ?? null }
          : {}),
        ...(mounts === undefined || mounts.length === 0 ? {} : { mounts }),
        confirmed,
      }),
    ),
  };
}

function annotateServices(
  list: YAMLSeq<YAMLMap<Node, Node>>,
  services: readonly FileService[],
  sections: Suggestion['sections'],
  notes: Suggestion['notes'],
): void {
  const counts = new Map<TSection, number>();
  for (const section of sections.values()) counts.set(section, (counts.get(section) ?? 0) + 1);
  let section: TSection | undefined;
  services.forEach((service, index) => {
    const item = list.items[index]!;
    const own = sections.get(service)!;
    comment(item, notes.get(service));
    if (own !== section) {
      item.commentBefore =
        ` ---- ${sectionTitles[own]} (${counts.get(own) ?? 0})\n${item.commentBefore ?? ''}`.trimEnd();
      item.spaceBefore = true;
      section = own;
    }
    const mounts = item.items.find((pair) => String(pair.key) === 'mounts')?.value as YAMLSeq<YAMLMap> | undefined;
    service.mounts?.forEach((mount, at) => comment(mounts?.items[at], notes.get(mount)));
  });
}

function comment(node: Node | Pair<Node, Node> | undefined, note: string | undefined, space = false): void {
  if (node === undefined || note === undefined) return;
  const at = 'commentBefore' in node || !('key' in node) ? (node as Node) : (node.key as Node);
  const lines = note.split('\n').map((line) => ` ${printable(line).trimStart()}`);
  at.commentBefore = lines.join('\n');
  if (space) at.spaceBefore = true;
}

const maximumUnanswered = 50;

function unansweredLines(blockers: readonly IFleetCutoverBlocker[]): string[] {
  if (blockers.length === 0) return [];
  const shown = blockers.slice(0, maximumUnanswered).map(({ code, nodeId, detail }) => {
    const where = nodeId === null ? '' : ` [${nodeId}]`;
    return `   ${code}${where}: ${printable(detail)}`;
  });
  const more = blockers.length - shown.length;
  return [
    '',
    ' What blocks and is not answered by a new statement here:',
    ...shown,
    ...(more > 0 ? [`   … and ${more} more: fleet-cutover call listFleetCutoverBlockers`] : []),
  ];
}

function informationLines(list: TAnswerList, { volumes, volumesLeftOut, anonymous }: ScopeFileInformation): string[] {
  if (list === 'dormantVolumes' && volumes.length > 0) {
    return [
      'For information, volumes of the nodes that no entry covers:',
      ...volumes.map(({ nodeId, volumeName, kind }) => `  ${nodeId} ${printable(volumeName)} (${kind})`),
      ...(volumesLeftOut > 0 ? [`  … and ${volumesLeftOut} more`] : []),
    ];
  }
  if (list === 'releasedAnonymousVolumes' && anonymous.length > 0) {
    return [
      'For information, services with required anonymous volumes, which do not survive the stop:',
      ...anonymous.map(({ serviceId, name, count }) => `  ${serviceId} ${printable(name)}: ${count}`),
    ];
  }
  return [];
}
