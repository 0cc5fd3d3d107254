"""Equal answers are equal strings, different answers are not, nonsense is None."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera.reading.canonical import canonical_choice, canonical_expression, canonical_number

Canonical = Callable[[str], str | None]
NUMBERS = {
    "18": r"""18|18.0|18.|$18|$18.00|\$18|18 dollars|36/2|\frac{36}{2}|\dfrac{36}{2}|\tfrac{36}2|+18
        |(18)|**18**|"18"|{18}|$$18$$|\(18\)|\[18\]|18\text{ apples}|18\ \text{cm}^2|18^\circ
        |18^{\circ}|18%|18\%|x = 18|x=18|9 + 9 = 18|\text{18}|\mathbf{18}|\approx 18|about 18
        |18th|18 / 1|1.8 \times 10^1|1.8e1|\left(18\right)|18\,\text{km/h}|Answer: 18
        |18 per hour|18\text{ m/s}|18\,\mathrm{m}|18^\circ\text{C}|18元|¥18|₹18""",
    "1080": r"1,080|1{,}080|1080|1080.00|$1,080|1 080|1\,080|1,\!080|1.08 \times 10^{3}|£1,080",
    "-5": r"-5|−5|–5|-5.0|- 5|-\$5|$-5$|-\frac{10}{2}|\frac{-10}{2}|\frac{10}{-2}|-10/2",
    "0.5": r"0.5|.5|1/2|\frac{1}{2}|\frac12|\frac 1 2|0.50|\dfrac{1}{2}|$\frac12$|-\frac{1}{-2}|½",
    "1.5": r"1.5|1\frac{1}{2}|1 1/2|3/2|1 \frac12|1½|1 ½",
    "-1.5": r"-1\frac{1}{2}|-1 1/2|-3/2",
    "1/3": r"1/3|\frac{1}{3}|2/6|\frac{2}{6}",
    "2000000": r"2 million|2,000,000|2 million dollars|2e6|20,00,000|20 lakh|200万元",
    "0": r"0|-0|0.0|0/7|\frac{0}{7}|zero",
    "12": r"12|twelve|Twelve",
    "1249.5": r"1249.50|1.249,50 €|1 249,50 €|€1,249.50|1249,5 Euro",
    "1500": r"1500|1.500 Euro|€ 1.500|1,500 euros",
    "0.1": r"0.1|1/10|0.10",
    "10": r"10|10%|10\%|10 percent",
}
NO_NUMBERS = r"""|none|2 or 3|2 and 3|2, 3|x=2, y=3|4x|55h|x + 5|5 to 6|5-6|1/0|\frac{1}{0}|1/2/3
    |5!|12:30
    |1. First add|5 hours 30 minutes|\sqrt{2}|5\pi|2^{10}|\infty|\frac362|abc|-|.|%|$
    |\frac{1}{x}|3 + 5
    |(1,2)|1,2,3|5 mod 7|many|nan|inf|0x10|1_000|1,50|0,125|twenty-five|1万2千|5千円"""
DIFFERENT_NUMBERS = [
    *(("5", "-5"), ("16", "1/16"), ("0.1", "10%"), ("1.500", "1.500 Euro"), ("5", "5 million"))
]

CHOICES = {
    "A": r"A|a|(A)|A.|\text{A}|Answer: A|A: bank|\text{(A)}|$A$|(a)|A) a river",
    "B": r"""B|b|(B)|[B]|B.|B)|B:|(B).|\text{B}|\textbf{B}|\mathrm{B}|\mathbf{(B)}
        |\text{(B)}|**B**|`B`
        |"B"|$B$|$\text{B}$|\(B\)|Option B|option (B)|Choice B|B) bank|B. bank|B: bank
        |(B) bank|B, bank
        |B - bank|\text{B) bank}|\text{(B) bank}|{B}|\textbf{(B) bank}|(B) vitamin C|\boldsymbol{B}
        |_B_|( B )|\left(B\right)""",
    "J": r"J|(J)|j",
}
NO_CHOICES = r"""|AB|A, C|A and B|A or B|(A) and (C)|(A), (B)|A/B|A&B|A.M.|none
    |bank|B bank|K|5|(5)|a bank|I think"""

EXPRESSIONS = {
    "0.5": r"0.5|\frac{1}{2}|\dfrac12|1/2|x = \frac{1}{2}|$0.50$|\frac{2}{4}",
    "5": r"""5|x=5|x = 5|AB = 5|\theta = 5|5\text{ cm}|5\text{ cm}^2|5 cm|5^\circ|5\%|\$5|f(x)=5|5.
        |\approx 5|x \approx 5|2+3=5|\angle ABC = 5^\circ|f^{-1}(x) = 5""",
    "1080": r"1,080|1{,}080|1,\!080|1080|1.08\text{ thousand}",
    "-2, 2": r"""-2, 2|2, -2|\pm 2|\pm2|x = \pm 2|2 or -2|2\text{ and }-2
        |x=2 or x=-2|2,-2,2|$x=2$, $x=-2$|x = 2, -2""",
    "1, 234": r"1, 234|234, 1|234 and 1",
    "(1,4.5)": r"(1, 4.5)|(1,\frac{9}{2})|\left(1,\frac92\right)|( 1 , 9/2 )|(x, y) = (1,4.50)",
    "[0,1]": r"[0,1]|[0, 1]|x \in [0,1]|\left[0,1\right]",
    r"(-\infty,3)\cup(5,\infty)": r"""(-\infty,3)\cup(5,\infty)|(5, +\infty) \cup (-\infty, 3)
        |\left(-\infty, 3\right) \cup \left(5, \infty\right)|(−∞,3)∪(5,∞)""",
    r"\{1,2\}": r"\{1,2\}|\{2, 1\}|\left\{1, 2\right\}|\lbrace 1,2 \rbrace|x \in \{1,2\}",
    r"\frac{\sqrt{3}}{3}": r"""\frac{\sqrt{3}}{3}|\frac{1}{\sqrt{3}}|\sqrt3/3|\dfrac{\sqrt 3}{3}
        |√3/3|\frac13\sqrt3""",
    r"2\sqrt{3}": r"2\sqrt{3}|\sqrt{12}|2 \sqrt{3}|2\cdot\sqrt{3}|2\sqrt3|\frac{6}{\sqrt{3}}",
    r"\frac{2\pi}{3}": r"\frac{2\pi}{3}|\frac{2}{3}\pi|2\pi/3|\frac{2 \pi}{3}|\tfrac{2}{3} \pi",
    r"-\frac{\sqrt{3}}{2}": r"-\frac{\sqrt{3}}{2}|\frac{-\sqrt{3}}{2}|\dfrac{-\sqrt3}2",
    r"\ln2": r"\ln 2|\ln(2)|\ln{2}",
    r"5\pmod7": r"5 \pmod 7|5\pmod7",
    r"\emptyset": r"\emptyset|\varnothing",
    "odd": r"Odd|\text{odd}|\text{Odd}",
    "4x": r"4x|4 x|4\cdot x|4 * x|4 \times x|$4x$",
    "10000x": r"10000x|10,000x|10{,}000x",
    "x^2+1": r"x^2+1|x**2 + 1|f'(x) = x^2+1|x^{2} + 1|x^2 + 1|y = x^2+1|x²+1|f(x) = x^{2}+1",
    r"3+\sqrt{5}, 3-\sqrt{5}": r"3 \pm \sqrt{5}|3+\sqrt{5}, 3-\sqrt{5}|3-\sqrt5 or 3+\sqrt5",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": r"""\begin{pmatrix}1&2\\3&4\end{pmatrix}
        |\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}""",
    "B": r"B|(B)|\text{B}|\textbf{(B)}|\text{(B)}",
    "yes": r"Yes|yes|\text{Yes}|\text{yes}|Yes.",
    "sunday": r"Sunday|\text{Sunday}|sunday",
    "x=2, y=3": r"x=2, y=3|y = 3, x = 2|x=2 \text{ and } y=3",
    r"\pi r^2": r"\pi r^2|\pi r^{2}|\pi  r^2",
    r"x\le3": r"x\le3|x \leq 3|x ≤ 3|x \leqslant 3",
}
DIFFERENT_EXPRESSIONS = [
    *(("5", "-5"), ("16", r"\frac{1}{16}"), ("(1,2)", "(2,1)"), ("[0,1]", "(0,1)"), ("4x", "4")),
    *(("10", "0.1"), (r"2 \cdot 3", "23"), ("x^2", "x2"), ("x=2, y=3", "x=3, y=2"), ("1 2", "12")),
    *(("1, 234", "1,234"), ("(1,2)", r"\{1,2\}"), ("(0,1]", "[0,1)"), (r"x^{2}\cdot 3", "x^{23}")),
    *((r"\sqrt{2}", "2"), (r"\frac{1}{\sqrt{3}}", r"\frac{1}{3}"), (r"\pi", r"\pi^2"), ("x", "X")),
    *((r"x \le 3", "x < 3"), (r"\frac{x}{2}", r"\frac{2}{x}"), ("(1,2),(3,4)", "(1,3),(2,4)")),
    *((r"2^{10}", "210"), ("i", "-i"), (r"3\sqrt{2}", r"2\sqrt{3}"), ("a_1", "a1"), ("x+1", "x-1")),
    *(("x+y=5", "5"), (r"\sin(x)y", r"\sin xy"), ("2, x=3", "2, 3"), (r"\sqrt{0}", "1")),
]


def rows(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(raw.strip(), one) for one, raws in table.items() for raw in raws.split("|")]


FORMS = {canonical_number: NUMBERS, canonical_choice: CHOICES, canonical_expression: EXPRESSIONS}
NONSENSE = {
    canonical_number: NO_NUMBERS.split("|"),
    canonical_choice: NO_CHOICES.split("|"),
    canonical_expression: ["", " ", "$$", r"\left", ".", "5" * 500, "x" * 401],
}


@pytest.mark.parametrize(
    ("canonical", "raw", "form"), [(c, *row) for c, table in FORMS.items() for row in rows(table)]
)
def test_equal_answers_have_one_form(canonical: Canonical, raw: str, form: str) -> None:
    assert canonical(raw) == form


@pytest.mark.parametrize(
    ("canonical", "raw"), [(c, raw.strip()) for c, raws in NONSENSE.items() for raw in raws]
)
def test_what_is_not_one_answer_is_none(canonical: Canonical, raw: str) -> None:
    assert canonical(raw) is None


@pytest.mark.parametrize(
    ("canonical", "one", "other"),
    [
        *((canonical_number, *pair) for pair in DIFFERENT_NUMBERS),
        *((canonical_expression, *pair) for pair in DIFFERENT_EXPRESSIONS),
    ],
)
def test_different_answers_stay_different(canonical: Canonical, one: str, other: str) -> None:
    assert None not in (canonical(one), canonical(other))
    assert canonical(one) != canonical(other)


def test_a_letter_that_is_not_offered_is_none() -> None:
    assert canonical_choice("E", "ABCD") is None
    assert canonical_choice("(D)", "ABCD") == "D"


@pytest.mark.parametrize("canonical", [canonical_number, canonical_expression])
@pytest.mark.parametrize("raw", ["9" * 5_000, "1/" + "9" * 398, "0." + "1" * 398, "9" * 99 + "e99"])
def test_numbers_of_any_length_do_no_harm(canonical: Canonical, raw: str) -> None:
    assert (once := canonical(raw)) is None or canonical(once) == once


@given(st.text() | st.text(alphabet=r"\{}()[]$,.=+-/^_ 0123456789xyfracsqtpimelbw", max_size=60))
def test_what_is_canonical_stays_as_it_is(raw: str) -> None:
    for canonical in (canonical_number, canonical_choice, canonical_expression):
        assert (once := canonical(raw)) is None or canonical(once) == once


@given(st.fractions(max_denominator=10**6))
def test_every_fraction_is_one_number_however_it_is_written(value) -> None:  # type: ignore[no-untyped-def]
    sign, size = ("-" if value < 0 else ""), abs(value)
    latex = rf"{sign}\frac{{{size.numerator}}}{{{size.denominator}}}"
    assert canonical_number(str(value)) == canonical_number(latex) == canonical_expression(latex)
