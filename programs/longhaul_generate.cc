// longhaul-generate: token ids in, token ids out, by a model in a folder as `longhaul export`
// writes it. A model whose ranks have channels of their own is computed by as many ranks, on the
// CPU. `longhaul generate` makes text of it. Exit codes: 0 done, 1 failed, 2 wrong usage.
//
//   stdin   the prompt's ids, decimal, in one line; more prompts in more lines
//   stdout  ids that follow, each in a line as soon as it is known; an empty line ends a prompt's
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "base/flags/command_line.h"
#include "run/published/weights.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/generator.h"
#include "worker/stage/group/group_generator.h"

namespace longhaul {
namespace {

struct Options {
  std::string folder, dtype = "fp32", device = "auto";
  uint32_t tokens = 64, threads = 1, context = 0;
  std::vector<uint32_t> stop;
  worker::Sampling sampling;
};

// `auto`: the first GPU where there is one, else the CPU.
StatusOr<DeviceName> OpenDevice(const std::string& text) {
  const bool is_open = text == "auto";
  LH_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(is_open ? "cuda" : text));
  if (!device.cuda_index) return device;
  const Status loaded = worker::LoadTorchCuda(worker::DefaultTorchCudaPath());
  if (loaded.ok()) return device;
  if (is_open) return DeviceName();
  return loaded;
}

// Ranks with channels of their own share no GPU.
StatusOr<DeviceName> DeviceFor(const published::RanksOfModel& ranks, const std::string& text) {
  if (!ranks.have_own_channels()) return OpenDevice(text);
  if (text == "auto") return DeviceName();
  LH_ASSIGN_OR_RETURN(const DeviceName device, ParseDeviceName(text));
  if (!device.cuda_index) return device;
  return InvalidArgument(
      "the model has {} ranks with channels of their own, which generate on the CPU; expected "
      "--device cpu, got {}",
      ranks.count, text);
}

// Makes generators for the texts of one model.
class Maker {
 public:
  static StatusOr<Maker> Open(const Options& options) {
    Maker maker;
    LH_ASSIGN_OR_RETURN(maker.weights_, published::ReadFolder(options.folder));
    LH_ASSIGN_OR_RETURN(const published::Config config,
                        published::ParseConfig(maker.weights_.config_json, "config.json"));
    LH_ASSIGN_OR_RETURN(const DeviceName device, DeviceFor(config.ranks, options.device));
    maker.ranks_ = config.ranks;
    maker.folder_ = options.folder;
    maker.wanted_ = {.model = config.model, .device = device, .threads = options.threads};
    maker.wanted_.dtype = options.dtype == "bf16" ? ComputeDtype::kBf16 : ComputeDtype::kFp32;
    uint32_t& context = maker.wanted_.model.context;
    if (options.context > 0) context = std::min(context, options.context);
    maker.longest_ = context;
    return maker;
  }

  // Returns a generator for a text of at most `tokens` tokens, or for as many as the context has.
  // Valid until the next call.
  StatusOr<worker::Generator*> For(uint64_t tokens) {
    // Embeddings that depend on how long the text becomes are those of this text.
    const RopeScaling scaling = wanted_.model.rope_scaling;
    const bool depends = scaling == RopeScaling::kDynamic || scaling == RopeScaling::kLongrope;
    const auto context = static_cast<uint32_t>(std::min<uint64_t>(longest_, tokens));
    if (generator_ && !depends) {
      generator_->Clear();
      return generator_.get();
    }
    if (depends) wanted_.model.context = std::max(context, 1u);
    generator_.reset();
    LH_ASSIGN_OR_RETURN(generator_, Make());
    return generator_.get();
  }

 private:
  StatusOr<std::unique_ptr<worker::Generator>> Make() const {
    const auto read = [this](const model::PlacedParameter& parameter, std::span<float> values) {
      return Read(parameter, values);
    };
    if (!ranks_.have_own_channels()) return worker::Generator::Create(wanted_, read);
    const std::vector<DeviceName> devices(ranks_.count, wanted_.device);
    worker::StageOptions stage = worker::StageOptionsOf(wanted_);
    stage.ranks = devices;
    stage.group.tensor = ranks_.count;
    stage.group.shared_channels = ranks_.shared_channels;
    return worker::MakeGroupGenerator(wanted_, stage.group, devices, read,
                                      worker::CommunicatorsFor(stage));
  }

  Status Read(const model::PlacedParameter& parameter, std::span<float> values) const {
    LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                        published::TensorOf(weights_, wanted_.model, parameter));
    LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                        published::ReadTensor(folder_, *tensor));
    published::Decode(*tensor, bytes, parameter.parameter, values);
    return absl::OkStatus();
  }

  std::string folder_;
  published::Weights weights_;
  published::RanksOfModel ranks_;
  worker::GeneratorOptions wanted_;
  uint32_t longest_ = 0;
  std::unique_ptr<worker::Generator> generator_;
};

StatusOr<std::vector<int32_t>> IdsIn(const std::string& line) {
  std::istringstream words(line);
  std::vector<int32_t> ids;
  for (int64_t id = 0; words >> id;) {
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("expected token ids, got {}", id);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  if (!words.eof()) return absl::InvalidArgumentError("expected token ids in a line");
  return ids;
}

Status Generate(const Options& options) {
  LH_ASSIGN_OR_RETURN(Maker maker, Maker::Open(options));
  std::string line;
  while (std::getline(std::cin, line)) {
    LH_ASSIGN_OR_RETURN(std::vector<int32_t> ids, IdsIn(line));
    LH_ASSIGN_OR_RETURN(worker::Generator* const generator,
                        maker.For(ids.size() + uint64_t{options.tokens}));
    uint64_t place = ids.size();
    for (uint32_t i = 0; i < options.tokens; ++i) {
      const StatusOr<std::span<const float>> logits = generator->Next(ids);
      if (absl::IsOutOfRange(logits.status()) && i > 0) break;  // the context is full
      LH_RETURN_IF_ERROR(logits.status());
      if (!std::ranges::all_of(*logits, [](float logit) { return std::isfinite(logit); })) {
        return absl::DataLossError(
            "the model's outputs are not finite; its weights are broken, or training diverged");
      }
      const uint32_t id = worker::Sample(*logits, options.sampling, place++);
      if (std::ranges::count(options.stop, id) > 0) break;
      fmt::print("{}\n", id);
      std::fflush(stdout);
      ids = {static_cast<int32_t>(id)};
    }
    fmt::print("\n");
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

void AddFlags(CLI::App& app, Options& options) {
  app.add_option("DIR", options.folder, "Folder with config.json and safetensors")->required();
  app.add_option("--tokens", options.tokens, "Maximum number of new tokens")->capture_default_str();
  app.add_option("--stop", options.stop, "Ids that end the text")
      ->type_name("ID,...")
      ->delimiter(',');
  app.add_option("--device", options.device,
                 "What computes: cpu, cuda, cuda:N, or auto, a GPU where there is one")
      ->capture_default_str();
  app.add_option(
      "--context", options.context,
      "Maximum number of tokens of prompt and text together; default: the model's context");
  app.add_option("--temperature", options.sampling.temperature,
                 "Sampling temperature; 0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k,
                 "Choose among this many likeliest tokens; 0: among all")
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p,
                 "Choose among the likeliest tokens whose probabilities add up to this share")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "Seed of the random numbers")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "Number of threads that compute")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "Type of matrix products: fp32, bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
}

int Run(std::span<char*> words) {
  Options options;
  CLI::App app("Token ids that follow those of a prompt, by a model in a folder.",
               "longhaul-generate");
  SetUpCommandLine(app);
  AddFlags(app, options);
  try {
    // CLI11 takes a list from its end.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& done) {
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}\n", DescribeUsageError(app, error));
    return 2;
  }
  const Status status = Generate(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "longhaul-generate: {}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  if (argc < 1) return 2;
  return longhaul::Run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
}
