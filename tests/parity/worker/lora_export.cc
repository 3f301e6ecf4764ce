// lora_export FOLDER usual|all-linear OUT: adapters of random numbers over the published model in
// FOLDER, and what longhaul makes of them:
//   OUT/adapters            as PEFT loads them
//   OUT/merged              the whole model
//   OUT/computed.safetensors  input_ids, and the logits of base and adapters
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <fmt/core.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "run/model/lora.h"
#include "run/published/export.h"
#include "run/published/safetensors.h"
#include "run/published/weights.h"
#include "worker/stage/model/init.h"
#include "worker/stage/model/model.h"

namespace longhaul::worker {
namespace {

constexpr int64_t kRows = 2, kTokens = 16;

std::span<float> ValuesOf(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

std::string BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

Status WriteComputed(const std::string& path, const Model& network, int64_t vocabulary) {
  const at::NoGradGuard no_grad;
  const at::Tensor ids =
      (at::arange(kRows * kTokens, at::kLong) * 29 % vocabulary).view({kRows, kTokens});
  const at::Tensor logits = network.Forward(ids).contiguous();
  return WriteFileAtomic(path,
                         published::SafetensorsHeader(
                             {{.name = "input_ids", .type = "I64", .shape = ids.sizes().vec()},
                              {.name = "logits", .type = "F32", .shape = logits.sizes().vec()}},
                             {}) +
                             BytesOf(ids) + BytesOf(logits));
}

Status Export(const std::string& from, bool all_linear, const std::string& out) {
  LH_ASSIGN_OR_RETURN(const published::Weights weights, published::ReadFolder(from));
  LH_ASSIGN_OR_RETURN(const published::Config config,
                      published::ParseConfig(weights.config_json, from));
  StageOptions options;
  options.model = config.model;
  options.model.lora = LoraSpec{.rank = 3, .alpha = 7.5, .targets = {}};
  options.model.lora->targets = all_linear
                                    ? model::TargetsOf(options.model)
                                    : model::FamilyOf(options.model).usual_targets(options.model);
  options.vocabulary = *options.model.vocabulary;
  options.layers = options.model.layers;
  options.loads = true;
  const ReadParameter read = [&](const model::PlacedParameter& parameter, std::span<float> values) {
    LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                        published::TensorOf(weights, options.model, parameter));
    LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, published::ReadTensor(from, *tensor));
    published::Decode(*tensor, bytes, parameter.parameter, values);
    return absl::OkStatus();
  };
  // Where rope depends on the context, transformers takes the rows' length.
  StageOptions of_rows = options;
  of_rows.model.context = kTokens;
  const auto network = Model::Create(of_rows);
  LH_RETURN_IF_ERROR(network->Load(read));
  std::map<std::string, std::span<const float>> adapters;
  for (const Parameter& parameter : network->parameters()) {
    const std::span<float> values = ValuesOf(parameter.value);
    if (parameter.name.ends_with(".lora_B.weight")) FillNormal(7, parameter.name, 0.2, values);
    adapters[parameter.name] = values;
  }
  network->RefreshCasts();
  for (const char* folder : {"/adapters", "/merged"}) {
    LH_RETURN_IF_ERROR(MakeDirectories(out + folder));
  }
  LH_RETURN_IF_ERROR(WriteComputed(out + "/computed.safetensors", *network, options.vocabulary));
  LH_RETURN_IF_ERROR(published::WriteAdapters(
      out + "/adapters", {.model = options.model, .base = from, .files = {}},
      [&](const model::PlacedParameter& parameter) { return adapters.at(parameter.Name()); }));

  published::Export merged{
      .model = options.model, .original_config = weights.config_json, .files = weights.files};
  merged.model.lora.reset();
  std::vector<float> values;
  return published::WriteFolder(
      out + "/merged", merged,
      [&](const model::PlacedParameter& parameter) -> StatusOr<std::span<const float>> {
        values.resize(parameter.parameter.shape.elements());
        LH_RETURN_IF_ERROR(read(parameter, values));
        const LoraSpec& lora = *options.model.lora;
        if (!model::HasAdapters(lora, parameter)) return values;
        const auto [a, b] = model::AdaptersOf(lora, parameter);
        model::Merge(lora, parameter.parameter.shape, adapters.at(a.Name()), adapters.at(b.Name()),
                     values);
        return values;
      });
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: lora_export FOLDER usual|all-linear OUT\n");
    return 2;
  }
  const longhaul::Status status =
      longhaul::worker::Export(argv[1], std::string(argv[2]) == "all-linear", argv[3]);
  if (!status.ok()) fmt::print(stderr, "lora_export: {}\n", longhaul::Message(status));
  return status.ok() ? 0 : 1;
}
