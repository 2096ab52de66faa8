/** Maximum number of jobs that are compared. */
export const MOST_JOBS = 8;
