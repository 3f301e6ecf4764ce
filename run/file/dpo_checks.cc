// What `train.dpo` implies, and what it cannot be combined with.
#include <fmt/format.h>

#include <string_view>

#include "run/file/run_spec_checks.h"

namespace longhaul::config {

void CompleteDpo(const Reader& reader, RunSpec* spec) {
  if (spec->train.dpo && !reader.Has("data.mask")) spec->data.mask_documents = true;
}

void CheckDpo(const RunSpec& spec, Reader& reader) {
  if (!spec.train.dpo) return;
  const auto fail = [&](std::string_view at, std::string_view problem) {
    reader.Fail(reader.PlaceOf(at), fmt::format("{}: {}", at, problem));
  };
  if (reader.Sound({"train.lora"}) && !spec.model.lora) {
    fail("train.dpo",
         "the reference of the loss is the model without adapters, and without train.lora that "
         "model changes in training; add train.lora, or leave dpo out");
  }
  if (reader.Sound({"data.sets", "data.text"}) && spec.data.sets.empty()) {
    fail("train.dpo",
         "data.text has no pairs of answers; make a data set of records with chosen and rejected "
         "(`longhaul data prepare --pairs --pack CONTEXT`) and name that by data.sets");
  } else if (reader.Sound({"data.mask"}) && !spec.data.mask_documents) {
    fail("data.mask",
         "expected document, got none: an answer must not see the other one of its pair; leave "
         "mask out");
  }
}

}  // namespace longhaul::config
