"""python -m aera"""

from aera.cli import main

main()
