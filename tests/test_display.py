"""What a user sees while a command works."""

import re
import time

from gsure.display import bar


def test_a_bar_shows_its_speed_until_it_has_finished_and_then_the_time_that_it_took(capsys):
    for done in (2, 3):
        with bar("counting", 3) as advance:
            for _ in range(done):
                time.sleep(0.6)
                advance(1)
        told = capsys.readouterr().err
        assert f"{done}/3" in told
        assert bool(re.search(r"\d/s", told)) == (done < 3)
    assert "0:00:01" in told
