-- What a mutation of handoffs costs the database.

-- It looks entries up by their key, 32 at a time. As four columns the key shared its first two with the primary key, and before
-- the table's first ANALYZE the planner took that one and read all entries of the node for each key (measured: 18 ms
-- instead of 1). One expression leaves it no choice. Identifiers contain no space.
drop index control.required_entries_key_facts;
create index required_entries_by_key on control.required_entries
  (cluster_id, (node_id || ' ' || service_id || ' ' || mount_identity_digest), since);

-- The primary key is in page order, too. Without the second index a revised handoff's head is changed in place.
drop index control.handoff_heads_in_page_order;
alter table control.handoff_heads set (fillfactor = 80);

-- A volume's row is written only for an entry whose node and service were read in the same transaction, and neither of them is ever
-- deleted: nobody has the right to. Two checks a row locked both rows once for each of 32 volumes.
alter table control.volumes drop constraint volumes_node, drop constraint volumes_service;
