-- had_token: whether there ever was an API token
SELECT EXISTS (SELECT FROM SCHEMA.had_token h)
