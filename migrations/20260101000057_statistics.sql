-- These tables grow from a handful of rows to tens of thousands within seconds. By default autovacuum looks again after a tenth of
-- the rows has changed; what the planner knows would then be about another table.

alter table job set (autovacuum_analyze_threshold = 200, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);
alter table task set (autovacuum_analyze_threshold = 200, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);
alter table allocation set (autovacuum_analyze_threshold = 200, autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.02);
alter table event set (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
