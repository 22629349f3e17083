"""What the demo's tenants send: short questions from a chat, longer passages from an archive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product

QUESTIONS = (
    "How do I reset the password of my account?",
    "Where can I see the invoices of last year?",
    "My parcel has not arrived yet, what should I do?",
    "Can I change the delivery address after ordering?",
    "The app closes as soon as I open the settings.",
    "Which payment methods do you accept in Norway?",
    "Is there a discount for students and teachers?",
    "Please cancel the subscription at the end of the month.",
    "Why was my card declined although it is valid?",
    "How long does a refund usually take?",
    "I would like to speak to a person, not a machine.",
    "Does the warranty cover a broken screen?",
    "Two items of my order are missing from the box.",
    "How can I export all of my data?",
    "The verification code never reaches my phone.",
    "Can two people share one premium account?",
    "What is the weight limit for international shipping?",
    "My discount code is refused at the checkout.",
    "Do you have a shop in the city centre?",
    "How do I turn off the weekly newsletter?",
    "The video stops after ten seconds on my television.",
    "Is it safe to wash this jacket at sixty degrees?",
    "When will the blue one be back in stock?",
    "I was charged twice for the same ticket.",
)

SUBJECTS = (
    "The minutes of the harbour board",
    "A letter from the surveyor of bridges",
    "The annual report of the water works",
    "An inspection of the northern lighthouse",
    "The ledger of the cloth merchants",
    "A note on the flood of that spring",
    "The inventory of the town library",
    "A petition by the tram drivers",
)

FINDINGS = (
    "records that the tide gate was repaired twice in one winter, and that nobody could say who had paid for it.",
    "lists forty barrels of lamp oil, nine coils of rope and a barometer which had not been read since May.",
    "asks for a second clerk, since the letters of three departments lie unanswered in the same drawer.",
    "describes the new pump in detail and regrets that the drawings were lost when the office moved.",
    "praises the volunteers who kept the road open for eleven days, and recommends a bell at the crossing.",
    "compares the cost of stone and timber for the quay, and leaves the decision to the next meeting.",
    "mentions a boy who counted every ship for a year; his numbers agree with the customs office to the day.",
    "concludes that the old maps are wrong by the width of a street, which explains the quarrel over the wall.",
)


def chat() -> Iterator[str]:
    """Endless short questions."""
    return cycle(QUESTIONS)


def archive() -> Iterator[str]:
    """Endless passages of one to three sentences."""
    for number, (subject, finding) in enumerate(cycle(product(SUBJECTS, FINDINGS))):
        sentence = f"{subject} {finding}"
        yield " ".join([sentence] * (1 + number % 3))
