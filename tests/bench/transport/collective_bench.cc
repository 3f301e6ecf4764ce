// How fast collectives in host memory are, with a thread for each rank:
//   longhaul-collective-bench [--ranks 4] [--mib 16] [--repeats 20]
// A line for each operation: the median over repeats of the slowest rank's time, and the bytes of
// the tensor by it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "transport/collective/host/factory.h"

namespace longhaul::collective {
namespace {

struct Settings {
  uint32_t ranks = 4;
  uint64_t mib = 16;
  int repeats = 20;
};

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "longhaul-collective-bench: {}\n", Message(status));
  std::exit(1);
}
template <class T>
T Must(StatusOr<T> made) {
  Must(made.status());
  return *std::move(made);
}

struct Measured {
  std::string name;
  std::function<Status(Communicator&, const void* in, void* out, uint64_t bytes)> call;
  bool small = false;  // its time has nothing to do with the tensor's bytes
};

const std::vector<Measured>& Calls() {
  static const auto* const calls = new std::vector<Measured>{
      {"all-reduce f32",
       [](Communicator& c, const void* in, void* out, uint64_t bytes) {
         return c.AllReduce(in, out, bytes / 4, Dtype::kF32, Reduction::kSum, {});
       }},
      {"all-reduce bf16",
       [](Communicator& c, const void* in, void* out, uint64_t bytes) {
         return c.AllReduce(in, out, bytes / 2, Dtype::kBf16, Reduction::kSum, {});
       }},
      {"reduce-scatter f32",
       [](Communicator& c, const void* in, void* out, uint64_t bytes) {
         return c.ReduceScatter(in, out, bytes / 4 / c.size(), Dtype::kF32, Reduction::kSum, {});
       }},
      {"all-gather",
       [](Communicator& c, const void* in, void* out, uint64_t bytes) {
         return c.AllGather(in, out, bytes / c.size(), Dtype::kBytes, {});
       }},
      {"all-to-all",
       [](Communicator& c, const void* in, void* out, uint64_t bytes) {
         return c.AllToAll(in, out, bytes / c.size(), Dtype::kBytes, {});
       }},
      {"broadcast", [](Communicator& c, const void*, void* out,
                       uint64_t bytes) { return c.Broadcast(out, bytes, Dtype::kBytes, 0, {}); }},
      {"all-reduce of 4 f32",
       [](Communicator& c, const void* in, void* out, uint64_t) {
         return c.AllReduce(in, out, 4, Dtype::kF32, Reduction::kSum, {});
       },
       true},
      {"barrier", [](Communicator& c, const void*, void*, uint64_t) { return c.Barrier({}); },
       true},
  };
  return *calls;
}

int Run(const Settings& settings) {
  const auto rendezvous = Must(Rendezvous::Open());
  const uint64_t bytes = settings.mib << 20;
  // By call and repeat: of the slowest rank.
  std::vector<std::vector<double>> seconds(Calls().size());
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < settings.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const Deadline deadline = Deadline::After(absl::Minutes(1));
      auto member = Must(Member::Join(rendezvous->id(), {rank, settings.ranks}, deadline));
      const auto communicator = Must(host::Create(member, {}, deadline));
      AlignedBuffer in(bytes), out(bytes);
      std::ranges::fill(in.span(), std::byte{0});
      std::ranges::fill(out.span(), std::byte{0});
      for (size_t call = 0; call < Calls().size(); ++call) {
        for (int repeat = -2; repeat < settings.repeats; ++repeat) {  // two to warm up
          Must(communicator->Barrier({}));
          const MonoTime begin = Now();
          Must(Calls()[call].call(*communicator, in.span().data(), out.span().data(), bytes));
          const double took = absl::ToDoubleSeconds(Now() - begin);
          if (repeat < 0) continue;
          const std::lock_guard lock(mutex);
          seconds[call].resize(static_cast<size_t>(settings.repeats));
          double& slowest = seconds[call][static_cast<size_t>(repeat)];
          slowest = std::max(slowest, took);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  fmt::print("{} ranks as threads, {} MiB a tensor, median of {}\n", settings.ranks, settings.mib,
             settings.repeats);
  for (size_t call = 0; call < Calls().size(); ++call) {
    auto& times = seconds[call];
    std::ranges::sort(times);
    const double median = times[times.size() / 2];
    const bool small = Calls()[call].small;
    fmt::print("{:20} {:9.3f} ms  {}\n", Calls()[call].name, median * 1e3,
               small ? "" : fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / median / 1e9));
  }
  return 0;
}

}  // namespace
}  // namespace longhaul::collective

int main(int argc, char** argv) {
  longhaul::collective::Settings settings;
  CLI::App app("collectives in host memory, timed");
  app.add_option("--ranks", settings.ranks)->check(CLI::Range(1, 64));
  app.add_option("--mib", settings.mib)->check(CLI::Range(1, 4096));
  app.add_option("--repeats", settings.repeats)->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  return longhaul::collective::Run(settings);
}
