from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("control", "0007_onnx_engine"),
    ]

    operations = [
        migrations.AddField(
            model_name="version",
            name="notes",
            field=models.JSONField(blank=True, default=list),
        ),
    ]
