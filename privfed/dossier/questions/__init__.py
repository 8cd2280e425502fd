"""Questions to a run, by the guideline or law that they come from."""

from privfed.dossier.questions import dpia, edpb, nist
from privfed.dossier.questions.question import Answer, Case, Question, Reply, SourceText, Unknown

QUESTIONS: tuple[Question, ...] = (*nist.QUESTIONS, *edpb.QUESTIONS, *dpia.QUESTIONS)

__all__ = ["QUESTIONS", "Answer", "Case", "Question", "Reply", "SourceText", "Unknown"]
