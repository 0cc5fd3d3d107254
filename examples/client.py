"""Ask a gateway with the OpenAI client: python examples/client.py URL MODEL QUESTION"""

import sys

from openai import OpenAI

if len(sys.argv) != 4:
    sys.exit(__doc__)
url, model, question = sys.argv[1:]
client = OpenAI(base_url=url, api_key="any")  # as http://127.0.0.1:8001/v1
reply = client.chat.completions.create(
    model=f"aera/{model}",  # the plain name would pass straight through
    messages=[{"role": "user", "content": question}],
    extra_body={"aera": {"max_samples": 16}},  # what a request may decide for itself
)
print(reply.choices[0].message.content)
print(reply.usage)
account = reply.model_extra["aera"]
print(f"{account['answer']} after {account['samples']} samples: {account['reason']}")
print(f"votes {account['votes']}, about {account['tokens_saved']} tokens saved")
