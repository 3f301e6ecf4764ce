"""What `prepare` says when it has ended."""
from . import manifest


def as_json(summary):
    made = summary.manifest
    return {"documents": made["documents"], **({"pairs": made["pairs"]} if "pairs" in made else {}),
            "tokens": manifest.tokens_of(made["training"]),
            "validation_documents": made["validation_documents"],
            "validation_tokens": manifest.tokens_of(made["validation"]), "targets": summary.targets,
            "vocabulary": made["vocabulary"], "bytes_per_token": made["bytes_per_token"],
            "filled_tokens": summary.training.filled_tokens, "cut_documents": summary.training.cut,
            "dropped_tokens": summary.training.dropped_tokens, "empty_documents": summary.training.empty,
            "documents_without_targets": summary.training.without_targets,
            "shards": len(made["training"]) + len(made["validation"]), "input_bytes": summary.input_bytes,
            "seconds": round(summary.seconds, 3), "notes": summary.notes}


def counted(number, noun):
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def as_text(summary, out):
    made = summary.manifest
    tokens, validation = manifest.tokens_of(made["training"]), manifest.tokens_of(made["validation"])
    lines = [f"{out}: {counted(made['documents'], 'document')}, {counted(tokens, 'token')} of "
             f"{made['bytes_per_token']} bytes in {counted(len(made['training']), 'shard')}"]
    if "pairs" in made:
        lines.append(f"pairs: {counted(made['pairs'], 'pair')} of answers")
    if validation:
        lines.append(f"validation: {counted(made['validation_documents'], 'document')}, "
                     f"{counted(validation, 'token')} in {counted(len(made['validation']), 'shard')}")
    if summary.targets is not None:
        lines.append(f"targets: {counted(summary.targets, 'token')}, {100 * summary.targets / tokens:.1f}%")
    if made["packed"]:
        lines.append(f"packed: windows of {made['packed']} tokens, {counted(summary.training.filled_tokens, 'token')} "
                     f"of filling, {100 * summary.training.filled_tokens / tokens:.1f}%")
    rate = summary.input_bytes / max(summary.seconds, 1e-9) / 1e6
    filled = summary.training.filled_tokens + summary.validation.filled_tokens
    lines.append(f"read {summary.input_bytes / 1e6:.1f} MB in {summary.seconds:.1f} s, {rate:.1f} MB/s, "
                 f"{summary.input_bytes / max(tokens + validation - filled, 1):.2f} bytes a token")
    return "\n".join(lines + [f"note: {note}" for note in summary.notes])
