-- What an advance must know of the volumes of required entries. Null: derived before anybody looked, which meets no gate.

-- Anonymous volumes that go with the containers of Swarm which mount them, as no container outside Swarm keeps them.
alter table control.node_gate_facts add column unkept_volumes bigint;
-- Volumes that are not on the node any more. The first of both kinds are in `detail`.
alter table control.node_gate_facts add column vanished_volumes bigint;
