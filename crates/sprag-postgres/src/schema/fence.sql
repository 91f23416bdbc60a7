-- For tables of yours with a column `fence`: refuses a row with a smaller fence than it has, so that
-- who lost the lock without noticing cannot write any more.
--   CREATE TRIGGER fenced BEFORE UPDATE ON report FOR EACH ROW EXECUTE FUNCTION sprag.check_fence();

CREATE FUNCTION sprag.check_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.fence < OLD.fence THEN
    RAISE EXCEPTION 'fence % is older than %: this writer has lost its lock', NEW.fence, OLD.fence
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  RETURN NEW;
END $$;
