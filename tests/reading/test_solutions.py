from aera import Question, get_task
from aera.reading.task import readable_answers

COLOURS = Question("q", "Which?", ("red", "blue"))


def test_a_worked_solution_counts_as_what_it_boxes_or_puts_behind_the_marker() -> None:
    written = ["so \\boxed{7}", "x #### 7 ", "7", "many", "", None]
    read = readable_answers([(COLOURS, text) for text in written], get_task("numeric"))
    assert read == ["7", "7", "7", None, None, None]


def test_a_choice_by_its_text_counts_as_its_letter() -> None:
    written = [(COLOURS, "blue"), (COLOURS, "A"), (Question("p", "?"), "blue")]
    assert readable_answers(written, get_task("choice")) == ["B", "A", None]
