-- Every round asks which GPUs were given back a moment ago; without this it would read all that ever were.

create index allocation_freed on allocation (released_at) where released_at is not null;
