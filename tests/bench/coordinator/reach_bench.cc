// longhaul-reach-bench: what it takes the coordinator that many workers try each other's addresses:
// for each that joins, with the answers that it causes, and for one call of `longhaul workers`,
// during which the state machine stands still.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/state/state.h"
#include "tests/support/state_harness.h"
#include "tests/support/worker_answers.h"

namespace longhaul::bench {
namespace {

using coordinator::Command;
using coordinator::Event;
using coordinator::SessionId;
using coordinator::State;
using coordinator::TickResult;

double Milliseconds(MonoTime since) {
  return absl::ToDoubleMilliseconds(Now() - since);
}

v1::Hello HelloOf(uint32_t number) {
  v1::Hello hello = coordinator::HelloOf(fmt::format("w{}", number));
  // As a random one: in no order.
  hello.set_worker_id(fmt::format("{:016x}", uint64_t{number} * 0x9e3779b97f4a7c15));
  return hello;
}

// Answers of all workers that were asked to dial. One of `one_of` workers neither reaches anybody
// over ucx nor is reached.
std::vector<Event> Answers(const TickResult& result, uint32_t one_of) {
  std::vector<Event> answers;
  for (const Command& command : result.commands) {
    const auto* to = std::get_if<coordinator::command::ToWorker>(&command);
    if (to == nullptr || !to->message.try_reach().dial()) continue;
    const v1::TryReach& ask = to->message.try_reach();
    v1::WorkerMessage message;
    const bool fails =
        one_of > 0 && ask.transport() == "ucx" &&
        (to->session.value() % one_of == 0 || std::stoul(ask.peer_name().substr(1)) % one_of == 0);
    *message.mutable_reach_tried() = testing::ReachTriedOf(ask, fails ? "connection refused" : "");
    answers.emplace_back(coordinator::event::WorkerSaid{to->session, std::move(message)});
  }
  return answers;
}

int Main(int argc, char** argv) {
  uint32_t workers = 4096, one_of = 8;
  CLI::App app("Measures what it takes the coordinator that workers try each other's addresses.");
  app.add_option("--workers", workers, "How many join")
      ->capture_default_str()
      ->check(CLI::Range(2u, 100'000u));
  app.add_option("--cut", one_of,
                 "One of so many workers reaches nobody over ucx; 0: all reach all")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  MonoTime now;  // of the state machine
  State state({.version = "bench"}, {}, 1, now);
  const MonoTime start = Now();
  for (uint32_t i = 1; i <= workers; ++i) {
    now = now + absl::Microseconds(10);
    std::vector<Event> joined;
    joined.emplace_back(coordinator::event::WorkerJoined{SessionId(i), HelloOf(i)});
    const TickResult result = state.Tick(std::move(joined), now, 1);
    state.Tick(Answers(result, one_of), now, 1);
  }
  // They have come as a crowd, which dials now. A long gap between ticks would count as a
  // standstill of the process.
  const MonoTime last = Now();
  for (int i = 0; i < 30; ++i) {
    now = now + absl::Milliseconds(100);
    state.Tick(Answers(state.Tick({}, now, 1), one_of), now, 1);
  }
  fmt::print("{} workers join: {:.2f} ms for each; they dial in {:.1f} ms of that\n", workers,
             Milliseconds(start) / workers, Milliseconds(last));
  const MonoTime asked = Now();
  const auto rows = state.views().Workers(now);
  fmt::print("one call of `longhaul workers`: {:.1f} ms\n", Milliseconds(asked));
  uint64_t talks = 0, cut = 0;
  for (const v1::WorkerStatus& row : rows) {
    talks += row.can_talk_to();
    cut += static_cast<uint64_t>(row.cannot_talk_to_size());
  }
  fmt::print("each talks to {:.2f} others and cannot to {:.2f}\n",
             static_cast<double>(talks) / workers, static_cast<double>(cut) / workers);
  if (rows.size() == workers && talks > 0 && (cut > 0) == (one_of > 0)) return 0;
  fmt::print(stderr, "expected {} workers who talk to others, and some cut off only with --cut\n",
             workers);
  return 1;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
