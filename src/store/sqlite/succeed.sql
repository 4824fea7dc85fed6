-- settle: running → succeeded, for neighbouring rows that one claim has taken
UPDATE jobs
SET status = 'succeeded', outcome = 'succeeded', result = ?4, ended_at = ?5, updated_at = ?5, finished_at = ?5,
    lease_expires_at = NULL
WHERE seq BETWEEN ?1 AND ?2 AND lease_token = ?3 AND status = 'running'
