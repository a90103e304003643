"""The time for which a daemon trusts its session: the arithmetic, without a server."""

from __future__ import annotations

from datetime import timedelta

from common.registry.protocol import Standing
from common.registry.trust import TrustWindow


def a_window(*, contact: float = 0.0) -> TrustWindow:
    """The window of a daemon that has joined, with a session of nine seconds."""
    window = TrustWindow(timedelta(seconds=9))
    window.begin(contact)
    return window


def test_who_has_not_joined_is_lost() -> None:
    window = TrustWindow(timedelta(seconds=9))
    window.contact(5.0)
    assert window.standing(5.0) is Standing.LOST
    assert window.next_change(5.0) is None


def test_silence_suspends_after_a_third_and_loses_after_two_thirds_of_the_timeout() -> None:
    window = a_window()
    assert window.standing(2.9) is Standing.TRUSTED
    assert window.standing(3.0) is Standing.SUSPENDED
    assert window.standing(5.9) is Standing.SUSPENDED
    assert window.standing(6.0) is Standing.LOST


def test_the_next_change_is_told_in_advance() -> None:
    window = a_window()
    assert window.next_change(1.0) == 2.0
    assert window.next_change(4.0) == 2.0


def test_a_contact_restores_trust() -> None:
    window = a_window()
    assert window.standing(4.0) is Standing.SUSPENDED
    window.contact(3.9)
    assert window.standing(4.0) is Standing.TRUSTED


def test_what_was_seen_lost_stays_lost() -> None:
    window = a_window()
    assert window.standing(6.0) is Standing.LOST
    window.contact(6.0)
    assert window.standing(6.0) is Standing.LOST


def test_a_daemon_that_slept_is_lost_although_its_last_answer_comes_in_late() -> None:
    window = a_window()
    window.contact(1.0)
    assert window.standing(100.0) is Standing.LOST


def test_a_broken_connection_suspends_until_something_sent_later_is_answered() -> None:
    window = a_window()
    window.suspend(1.0)
    window.contact(0.9)
    assert window.standing(1.1) is Standing.SUSPENDED
    window.contact(1.2)
    assert window.standing(1.3) is Standing.TRUSTED


def test_the_order_in_which_answers_are_noted_does_not_matter() -> None:
    window = a_window()
    window.contact(2.0)
    window.contact(1.0)
    assert window.standing(4.9) is Standing.TRUSTED


def test_a_shorter_timeout_counts_at_once() -> None:
    window = a_window()
    window.negotiate(timedelta(seconds=3))
    assert window.standing(2.0) is Standing.LOST
