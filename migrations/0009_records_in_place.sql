-- A handoff's record is some 2,000 bytes of digests and names, which do not compress. With its key the row was just over the size from
-- which Postgres tries that, and then moves the record to a table of its own with another index: two thirds of what writing it
-- cost (measured, 32 rows: 4.3 ms, in place 3.0). In place it may be twice as long.
alter table control.handoff_revisions set (toast_tuple_target = 4080);
