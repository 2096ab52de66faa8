-- A job is not started again on a node that lacks what its program needs.

alter table job add column unfit_nodes uuid[] not null default '{}';
comment on column job.unfit_nodes is 'Nodes on which its program, a folder or what command.check asks for was missing; it is placed on others.';
