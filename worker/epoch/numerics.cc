#include "worker/epoch/numerics.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/version.h"
#include "codec/blob.h"
#include "worker/stage/device/libraries.h"

namespace longhaul::worker {
namespace {

bool StartsWithAny(std::string_view text, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](std::string_view prefix) { return text.starts_with(prefix); });
}

// The CPU's floating-point instruction sets. Libraries choose kernels by them, and virtual machines
// hide some of them under the same CPU name.
std::string InstructionSets() {
  constexpr std::array<std::string_view, 5> kFloating = {"sse", "avx", "amx", "fma", "f16c"};
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("flags") || colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 2));
    std::string sets;
    for (std::string word; words >> word;) {
      if (StartsWithAny(word, kFloating)) sets += word + " ";
    }
    return sets;
  }
  return "";
}

// What a person can tell the libraries that compute.
std::string Environment() {
  constexpr std::array<std::string_view, 9> kToLibraries = {
      "ATEN_", "CUBLAS", "DNNL_", "GOMP_", "KMP_", "MKL_", "NVIDIA_TF32_", "OMP_", "ONEDNN_"};
  std::vector<std::string_view> said;
  for (char** one = environ; *one != nullptr; ++one) {
    if (StartsWithAny(*one, kToLibraries)) said.emplace_back(*one);
  }
  std::ranges::sort(said);
  return fmt::format("{}", fmt::join(said, "\n"));
}

}  // namespace

const std::string& Surroundings() {
  static const std::string known = [] {
    const std::string sets = InstructionSets();
    if (sets.empty()) return std::string();
    return fmt::format("{}\nlibc {}\n{}\n{}", LibrariesOfStages(), gnu_get_libc_version(), sets,
                       Environment());
  }();
  return known;
}

uint64_t NumericsOf(const Assignment& assignment, const Cell& cell, const RunSpec& spec,
                    std::span<const v1::Device> devices, const std::string& surroundings) {
  const v1::Device& device = devices.front();
  const bool in_order = device.kind() == "cpu" || spec.train.deterministic;
  if (spec.replay || !in_order || surroundings.empty()) return 0;
  // Two parts have one sum, and all but NCCL sum more in the order of ranks. Who sums on GPUs
  // depends on their links and, where it is chosen, on times that were measured.
  if (device.kind() != "cpu" && cell.group.tensor > 2) return 0;
  const uint32_t threads = cell.setting.threads;
  std::string all = fmt::format(
      "{}\ntext {}, {} tokens, {} of them for validation, vocabulary {}\n"
      "layers {} to {}, embedding {}, head {}, {} x {} ranks\n"
      "{} threads, on {} cores at most, of {} {}\n",
      assignment.run_yaml, assignment.data.token_file_sha256, assignment.data.tokens,
      assignment.data.validation_tokens, assignment.data.vocabulary, cell.layers.first,
      cell.layers.end(), cell.roles.embedding, cell.roles.head, cell.group.tensor,
      cell.group.expert, threads, device.kind() == "cpu" ? std::min(threads, device.cores()) : 0,
      device.kind(), device.name());
  for (const v1::Device& other : devices.subspan(1)) {
    all += fmt::format("another rank on {} {}, {} cores\n", other.kind(), other.name(),
                       std::min(threads, other.cores()));
  }
  for (const Edge& edge : assignment.edges) {
    if (edge.from != cell.id && edge.to != cell.id) continue;
    all += fmt::format("edge {}, {}: {} and {}\n", edge.id.value(), edge.from == cell.id,
                       ToString(edge.forward.codec), ToString(edge.backward.codec));
  }
  // The blob version is included because it fixes the random numbers of stochastic rounding.
  all += fmt::format("longhaul {}, blobs {}\n{}", Version(), codec::kBlobVersion, surroundings);
  return std::max<uint64_t>(Checksum64(std::as_bytes(std::span(all))), 1);
}

}  // namespace longhaul::worker
