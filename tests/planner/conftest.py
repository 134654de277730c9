import json

import pytest
from planner_commands import PROBLEM

from planner.serialization import problem_to_dict


@pytest.fixture
def problem_path(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem_to_dict(PROBLEM)))
    return path
