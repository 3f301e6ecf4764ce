#include <fmt/ranges.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "deploy/sweep/results.h"

namespace longhaul::cli {
namespace {

// What stands behind `key` and `separator` in a file of such lines; "" where it is not there.
std::string ValueOf(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || !line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"\r");
    return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
  }
  return "";
}

// By the driver's account, which needs no CUDA: "3 x NVIDIA H200, 1 x NVIDIA L4".
std::string GpusOfThisMachine() {
  std::map<std::string, int> counts;
  std::error_code none;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    const std::string model = ValueOf((gpu.path() / "information").c_str(), "Model", ':');
    ++counts[model.empty() ? "unknown GPU" : model];
  }
  std::vector<std::string> texts;
  for (const auto& [model, count] : counts) texts.push_back(fmt::format("{} x {}", count, model));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

MachineInfo ThisMachineInfo() {
  MachineInfo machine;
  utsname names{};
  uname(&names);
  machine.cpu = ValueOf("/proc/cpuinfo", "model name", ':');
  if (machine.cpu.empty()) machine.cpu = names.machine;
  machine.system = ValueOf("/etc/os-release", "PRETTY_NAME", '=');
  machine.kernel = std::string(names.sysname) + " " + names.release;
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    machine.cores = static_cast<uint32_t>(CPU_COUNT(&cores));
  }
  struct sysinfo info {};
  if (sysinfo(&info) == 0) machine.memory_bytes = uint64_t{info.totalram} * info.mem_unit;
  machine.gpus = GpusOfThisMachine();
  return machine;
}

}  // namespace longhaul::cli
