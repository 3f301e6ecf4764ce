COLUMNS = {"validation loss before the first step, through the codecs": "imported_validation_loss",
           "validation loss after 10 steps, through the codecs": "validation_loss",
           "clean validation loss": "clean_validation_loss",
           "loss that transformers finds in the export (LoRA: merged), same windows": "transformers_loss",
           "difference of these two": "difference", "a step, median": "step_seconds",
           "`submit`: hashing 988 MB of weights and sending what the coordinator lacks": "submit_seconds",
           "`export`": "export_seconds"}


def check(page, rows, folder):
    found = rows("fine_tuning.csv")

    def of(lora):
        return lambda row: found.where(lora=lora).one(COLUMNS[row[""]])
    page.table("| | all parameters", {"all parameters, `tied: split`": of(0),
                                      "LoRA of rank 8 on all linear modules, `tied: true`": of(8)})
    page.given("transformers 5.17", "Qwen2.5-0.5B")
