-- A handoff's record is some 2,000 bytes of digests and names, which do not compress. With its key the row was just over the size from
-- which Postgres tries that, and then moves the record to a table of its own with another index: a third of what writing 32 of them
-- cost (measured: 4.3 ms, in place 3.0). In place it may be twice as long. A page has 5,000 bytes of the same kind.
alter table control.handoff_revisions set (toast_tuple_target = 4080);
alter table control.handoff_pages set (toast_tuple_target = 8160);
