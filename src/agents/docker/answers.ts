/**
 * The parts of the Engine API's answers (v1.41, https://docs.docker.com/reference/api/engine/version/v1.41/) that the
 * collectors read. Everything else in an answer is ignored; what is read must have this shape, or the answer is
 * refused. Go writes an empty slice or map as `null`, `[]` or `{}`, or leaves it out.
 */
import { type Static, type TSchema, Type } from '@sinclair/typebox';

const Text = Type.String();
const Natural = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

function maybe<T extends TSchema>(schema: T) {
  return Type.Optional(Type.Union([schema, Type.Null()]));
}

/** A map of strings. Not `Type.Record`, whose key pattern would let a key with a line break carry any value. */
const TextMap = Type.Unsafe<Record<string, string>>(Type.Object({}, { additionalProperties: Text }));

/** `GET /version`. */
export const EngineVersion = Type.Object({ ApiVersion: Text, MinAPIVersion: Type.Optional(Text) });
export type IEngineVersion = Static<typeof EngineVersion>;

/** `GET /info`. */
export const EngineInfo = Type.Object({
  Swarm: Type.Object({
    NodeID: Text,
    LocalNodeState: Text,
    ControlAvailable: Type.Boolean(),
    Cluster: maybe(Type.Object({ ID: Text })),
  }),
});
export type IEngineInfo = Static<typeof EngineInfo>;

/** `GET /containers/json?all=1`. Only the ids: what the inspect says wins over what the list says. */
export const EngineContainerList = Type.Array(Type.Object({ Id: Text }));

export const EngineContainerMount = Type.Object({
  Type: Text,
  Name: Type.Optional(Text),
  Source: Type.Optional(Text),
  Destination: Text,
  Driver: Type.Optional(Text),
  RW: Type.Boolean(),
});
export type IEngineContainerMount = Static<typeof EngineContainerMount>;

const EnginePortBindings = Type.Unsafe<Record<string, { HostPort: string }[] | null>>(
  Type.Object({}, { additionalProperties: Type.Union([Type.Array(Type.Object({ HostPort: Text })), Type.Null()]) }),
);

/** `GET /containers/{id}/json`. */
export const EngineContainer = Type.Object({
  Id: Text,
  Name: Text,
  Image: Text,
  State: Type.Object({ Status: Text }),
  Config: Type.Object({ Image: Text, Labels: maybe(TextMap) }),
  Mounts: maybe(Type.Array(EngineContainerMount)),
  NetworkSettings: Type.Object({ Ports: maybe(EnginePortBindings) }),
});
export type IEngineContainer = Static<typeof EngineContainer>;

export const EngineVolume = Type.Object({
  Name: Text,
  Driver: Text,
  Mountpoint: Text,
  Options: maybe(TextMap),
});
export type IEngineVolume = Static<typeof EngineVolume>;

/** `GET /volumes`. */
export const EngineVolumeList = Type.Object({
  Volumes: maybe(Type.Array(EngineVolume)),
  Warnings: maybe(Type.Array(Text)),
});

export const EngineImage = Type.Object({ Id: Text, RepoDigests: maybe(Type.Array(Text)) });
export type IEngineImage = Static<typeof EngineImage>;

/** `GET /images/json`. */
export const EngineImageList = Type.Array(EngineImage);

export const EngineNode = Type.Object({
  ID: Text,
  Spec: Type.Object({ Role: Text, Availability: Text }),
  Description: maybe(Type.Object({ Hostname: Type.Optional(Text) })),
  Status: Type.Object({ State: Text }),
});
export type IEngineNode = Static<typeof EngineNode>;

/** `GET /nodes`. */
export const EngineNodeList = Type.Array(EngineNode);

export const EngineSpecMount = Type.Object({
  Type: Text,
  Source: Type.Optional(Text),
  Target: Text,
  ReadOnly: Type.Optional(Type.Boolean()),
  VolumeOptions: maybe(
    Type.Object({
      DriverConfig: maybe(Type.Object({ Name: Type.Optional(Text), Options: maybe(TextMap) })),
    }),
  ),
});
export type IEngineSpecMount = Static<typeof EngineSpecMount>;

export const EngineServicePort = Type.Object({
  Protocol: Text,
  TargetPort: Type.Optional(Natural),
  PublishedPort: Type.Optional(Natural),
  PublishMode: Type.Optional(Text),
});
export type IEngineServicePort = Static<typeof EngineServicePort>;

const EngineServicePorts = maybe(Type.Array(EngineServicePort));

export const EngineServiceMode = Type.Object({
  Replicated: maybe(Type.Object({ Replicas: Natural })),
  Global: maybe(Type.Object({})),
  ReplicatedJob: maybe(Type.Object({ TotalCompletions: Natural })),
  GlobalJob: maybe(Type.Object({})),
});
export type IEngineServiceMode = Static<typeof EngineServiceMode>;

export const EngineService = Type.Object({
  ID: Text,
  Version: Type.Object({ Index: Natural }),
  Spec: Type.Object({
    Name: Text,
    Labels: maybe(TextMap),
    Mode: EngineServiceMode,
    TaskTemplate: Type.Object({
      ContainerSpec: maybe(Type.Object({ Image: Type.Optional(Text), Mounts: maybe(Type.Array(EngineSpecMount)) })),
    }),
    EndpointSpec: maybe(Type.Object({ Ports: EngineServicePorts })),
  }),
  Endpoint: maybe(Type.Object({ Ports: EngineServicePorts })),
});
export type IEngineService = Static<typeof EngineService>;

/** `GET /services`. */
export const EngineServiceList = Type.Array(EngineService);

export const EngineTask = Type.Object({
  ID: Text,
  CreatedAt: Text,
  ServiceID: Text,
  Slot: Type.Optional(Natural),
  NodeID: Type.Optional(Text),
  DesiredState: Text,
  Status: Type.Object({
    State: Text,
    ContainerStatus: maybe(Type.Object({ ContainerID: Type.Optional(Text) })),
  }),
});
export type IEngineTask = Static<typeof EngineTask>;

/** `GET /tasks`. */
export const EngineTaskList = Type.Array(EngineTask);
