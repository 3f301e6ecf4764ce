// longhaul-generate: token ids in, token ids out, by a model in a folder as `longhaul export`
// writes it. `longhaul generate` makes text of it. Exit codes: 0 done, 1 failed, 2 wrong usage.
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
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "base/flags/command_line.h"
#include "run/published/weights.h"
#include "worker/stage/device/torch_cuda.h"
#include "worker/stage/generator.h"

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

Status Generate(const Options& options) {
  LH_ASSIGN_OR_RETURN(const published::Weights weights, published::ReadFolder(options.folder));
  LH_ASSIGN_OR_RETURN(const published::Config config,
                      published::ParseConfig(weights.config_json, "config.json"));
  LH_ASSIGN_OR_RETURN(const DeviceName device, OpenDevice(options.device));
  worker::GeneratorOptions wanted{
      .model = config.model, .device = device, .threads = options.threads};
  wanted.dtype = options.dtype == "bf16" ? ComputeDtype::kBf16 : ComputeDtype::kFp32;
  if (config.window) wanted.model.context = std::min(wanted.model.context, *config.window);
  if (options.context > 0) wanted.model.context = std::min(wanted.model.context, options.context);
  LH_ASSIGN_OR_RETURN(
      const auto generator,
      worker::Generator::Create(
          wanted, [&](const model::PlacedParameter& parameter, std::span<float> values) -> Status {
            LH_ASSIGN_OR_RETURN(const published::Tensor* tensor,
                                published::TensorOf(weights, wanted.model, parameter));
            LH_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                                published::ReadTensor(options.folder, *tensor));
            published::Decode(*tensor, bytes, parameter.parameter, values);
            return absl::OkStatus();
          }));
  std::string line;
  while (std::getline(std::cin, line)) {
    generator->Clear();
    std::istringstream words(line);
    std::vector<int32_t> ids;
    for (int64_t id = 0; words >> id;) {
      if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
        return InvalidArgument("expected token ids, got {}", id);
      }
      ids.push_back(static_cast<int32_t>(id));
    }
    if (!words.eof()) return absl::InvalidArgumentError("expected token ids in a line");
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
