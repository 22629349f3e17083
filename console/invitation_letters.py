"""The letter with an invitation's link, whether a page or the API asked for it."""

from __future__ import annotations

from smtplib import SMTPException

import structlog
from django.core.mail import send_mail
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext as _

from tenants.actions.invitations import VALID_FOR
from tenants.people import Invitation

log = structlog.get_logger(__name__)


def link_of(request: HttpRequest, secret: str) -> str:
    return request.build_absolute_uri(reverse("join", args=[secret]))


def send_invitation(invitation: Invitation, link: str) -> bool:
    """Whether the mail was taken; where it was not, the invitation stays and can be sent again."""
    context = {"invitation": invitation, "link": link, "days": VALID_FOR.days}
    subject = _("Join %(name)s on Tidegate") % {"name": invitation.tenant.name}
    try:
        send_mail(subject, render_to_string("mail/invitation.txt", context), None, [invitation.email])
    except (SMTPException, OSError) as error:
        log.warning("invitation.mail_unsent", invitation=invitation.pk, error=str(error))
        return False
    return True
