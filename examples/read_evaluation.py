"""Read what `aera evaluate --json FILE` wrote: python examples/read_evaluation.py FILE"""

import json
import sys
from pathlib import Path

file = Path(sys.argv[1] if sys.argv[1:] else sys.exit(__doc__))
evaluation = json.loads(file.read_text("utf-8"))
pool = evaluation["pool"]
full = f"fixed-{pool['schedule'][-1]}"
print(f"{pool['name']}, {pool['questions']} questions, protocol {evaluation['protocol']}")
against = {row["policy"]: row for row in evaluation["comparisons"] if row["reference"] == full}
for point in evaluation["points"]:
    line = f"{point['policy']:12} {point['accuracy']:6.2f} %, {point['token_saving']:5.1f} % saved"
    row = against.get(point["policy"])
    if row:
        interval = f"[{row['low']:+.1f}, {row['high']:+.1f}]"
        line += f", {row['difference']:+.1f} points {interval} against {full}"
    print(line)
