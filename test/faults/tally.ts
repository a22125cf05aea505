/** What a run has found so far, and its last line. */
export class Tally {
  kills = 0;
  acknowledged = 0;
  badInputs = 0;
  crashes = 0;
  verify: 'clean' | 'findings' | 'unavailable' = 'unavailable';
  readonly lost: string[] = [];
  readonly doubled: string[] = [];
  readonly serverErrors: string[] = [];
  /** What has no number in the last line, and fails the run all the same. */
  readonly wrong: string[] = [];

  /** The findings for people, on standard error; then the numbers, as the last line of standard output. */
  print(): void {
    for (const kind of ['lost', 'doubled', 'serverErrors', 'wrong'] as const) {
      for (const finding of this[kind].slice(0, 10)) process.stderr.write(`${kind}: ${finding.slice(0, 500)}\n`);
    }
    const { kills, acknowledged, badInputs, crashes, verify } = this;
    const counts = { lost: this.lost.length, doubled: this.doubled.length };
    const line = { kills, acknowledged, ...counts, badInputs, serverErrors: this.serverErrors.length, crashes, verify };
    process.stdout.write(`${JSON.stringify(line)}\n`);
  }

  get isClean(): boolean {
    const findings = [this.lost, this.doubled, this.serverErrors, this.wrong].flat();
    return findings.length === 0 && this.crashes === 0 && this.verify === 'clean';
  }
}
