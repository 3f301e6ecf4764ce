// published_rewrite config IN.json OUT.json: reads a config.json and writes that of the same model
// without looking at the old one again.
// published_rewrite folder IN OUT TYPE: reads a published folder and writes its config.json anew
// and all parameters into OUT/model.safetensors, as fp32, bf16 or fp16.
#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "run/model/family.h"
#include "run/published/config.h"
#include "run/published/safetensors.h"
#include "run/published/weights.h"

namespace longhaul::published {
namespace {

Status RewriteConfig(const std::string& in, const std::string& out) {
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(in));
  LH_ASSIGN_OR_RETURN(const Config config, ParseConfig(text, in));
  LH_ASSIGN_OR_RETURN(const std::string again, WriteConfig(config.model, ExportType::kFp32, ""));
  return WriteFileAtomic(out, again);
}

Status RewriteFolder(const std::string& in, const std::string& out, ExportType type,
                     const std::string& type_name) {
  LH_ASSIGN_OR_RETURN(const Weights weights, ReadFolder(in));
  LH_ASSIGN_OR_RETURN(const Config config, ParseConfig(weights.config_json, in));
  const ModelSpec& model = config.model;
  std::vector<TensorEntry> entries;
  std::string bytes;
  for (const auto& parameter : model::ParametersOf(
           model, *model.vocabulary,
           {.first_layer = 0, .layers = model.layers, .embedding = true, .head = true})) {
    LH_ASSIGN_OR_RETURN(const Tensor* tensor, TensorOf(weights, model, parameter));
    LH_ASSIGN_OR_RETURN(const std::vector<std::byte> read, ReadTensor(in, *tensor));
    std::vector<float> values(parameter.parameter.shape.elements());
    Decode(*tensor, read, parameter.parameter, values);
    if (parameter.parameter.published_first_row == 0) {
      entries.push_back({.name = parameter.PublishedName(),
                         .type = type_name,
                         .shape = PublishedShape(parameter.parameter)});
    }
    const std::vector<std::byte> written = Encode(values, parameter.parameter, type);
    bytes.append(reinterpret_cast<const char*>(written.data()), written.size());
  }
  LH_RETURN_IF_ERROR(MakeDirectories(out));
  LH_ASSIGN_OR_RETURN(const std::string text, WriteConfig(model, type, ""));
  LH_RETURN_IF_ERROR(WriteFileAtomic(out + "/config.json", text));
  return WriteFileAtomic(out + "/model.safetensors",
                         SafetensorsHeader(entries, {{"format", "pt"}}) + bytes);
}

Status Rewrite(const std::vector<std::string>& arguments) {
  if (arguments.size() == 3 && arguments[0] == "config") {
    return RewriteConfig(arguments[1], arguments[2]);
  }
  if (arguments.size() == 4 && arguments[0] == "folder") {
    const std::string &in = arguments[1], &out = arguments[2];
    if (arguments[3] == "fp32") return RewriteFolder(in, out, ExportType::kFp32, "F32");
    if (arguments[3] == "bf16") return RewriteFolder(in, out, ExportType::kBf16, "BF16");
    if (arguments[3] == "fp16") return RewriteFolder(in, out, ExportType::kFp16, "F16");
  }
  return absl::InvalidArgumentError(
      "usage: config IN.json OUT.json | folder IN OUT fp32|bf16|fp16");
}

}  // namespace
}  // namespace longhaul::published

int main(int argc, char** argv) {
  const longhaul::Status status = longhaul::published::Rewrite({argv + 1, argv + argc});
  if (!status.ok()) fmt::print(stderr, "published_rewrite: {}\n", longhaul::Message(status));
  return status.ok() ? 0 : 1;
}
