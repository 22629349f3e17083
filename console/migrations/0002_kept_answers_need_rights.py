from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("console", "0001_answers_are_kept_for_a_day")]

    operations = [migrations.AddField("keptanswer", "needs", models.JSONField(default=dict))]
