// Writes a checkpoint of a run as a folder that transformers loads (config.json, tensors, what
// belongs to the tokenizer), or the adapters of a run with LoRA as a folder that PEFT loads. A
// model whose ranks have channels of their own becomes a folder of longhaul's
// (published/own_folder.h). The CLI and the coordinator's hooks make the same files of the same
// checkpoint.
//
// Threads: one for each call. Calls block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "base/words.h"
#include "run/file/run_spec.h"
#include "run/published/weights.h"

namespace longhaul::exporting {

// Where an export gets what it is made of.
class ExportSource {
 public:
  virtual ~ExportSource() = default;
  // Writes the coordinator's blob, or copy of a shard, with this SHA-256 to `path`.
  virtual Status Fetch(const std::string& sha256, const std::string& path) = 0;
  // For weights at an address with which the run began.
  virtual StatusOr<std::unique_ptr<remote::Store>> OpenStore(const remote::Address& address) = 0;
};

// Which folder is asked for.
enum class ExportFormat : uint8_t {
  kPublished,  // transformers and PEFT load it
  kOwn,        // longhaul's, of a model whose ranks have channels of their own
  kEither,     // the one that such a run can have
};
constexpr std::string_view ToString(ExportFormat format) {
  return WordOf(format, {"huggingface", "longhaul", "auto"});
}

struct ExportOrder {
  RunSpec spec;
  ExportFormat format = ExportFormat::kPublished;
  uint32_t vocabulary = 0;  // of the tokenizer
  // SHA-256 of the checkpoint's files of parameters.
  std::vector<std::string> parameters;
  // nullopt: each tensor has the type that it had in the weights with which the run began; fp32 if
  // it began with none, and for adapters.
  std::optional<published::ExportType> type;
  // For a run with LoRA. True: the whole model with the adapters added. False: the adapters.
  bool merged = false;
  // For adapters: the name of the adapted model in adapter_config.json. "": the name that the
  // model's config.json has, or the model's folder.
  std::string base;
};

struct WrittenExport {
  bool adapters = false;
  published::ExportType type;      // most tensors have it
  std::vector<std::string> notes;  // sentences about what is missing, for people
};

// kFailedPrecondition: no such export can be made of such a run. `run`: its name, for the message.
Status CheckExportable(const RunSpec& spec, ExportFormat format, const std::string& run);

// Writes the export into `folder`, which exists and is empty. Files of the checkpoint are kept
// there meanwhile, under hidden names. Errors: of CheckExportable and `source`; kDataLoss: the
// files are not of this model.
StatusOr<WrittenExport> WriteExport(const ExportOrder& order, ExportSource& source,
                                    const std::string& folder);

}  // namespace longhaul::exporting
