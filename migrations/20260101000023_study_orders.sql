-- Orders are counted and taken by their study at every order and every step; without this each of that reads the orders of all studies.

create index study_order_of on study_order (study_id, id);
