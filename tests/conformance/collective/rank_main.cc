// A process that is one rank of a group and makes the same call for ever, to be killed: see
// killed_rank_test.cc.
//   NAME_collective_rank <backend> <size> <rank> <call> [<id>]
// Rank 0 opens the rendezvous and says its id. Every rank says "ready" when it has made a few
// calls, and why the group ended when it has.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/conformance/collective/group.h"

namespace longhaul::collective {
namespace {

void Say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

int Run(const Backend& backend, const Place& place, const NamedCall& call,
        const std::string& given_id) {
  std::unique_ptr<Rendezvous> rendezvous;
  std::string id = given_id;
  if (place.rank == 0) {
    auto opened = Rendezvous::Open();
    if (!opened.ok()) return 1;
    rendezvous = *std::move(opened);
    id = rendezvous->id();
    Say("id " + id);
  }
  const auto rank = Rank::Join(backend, id, place, {});
  if (!rank.ok()) {
    Say(std::string(Message(rank.status())));
    return 1;
  }
  constexpr uint64_t kCount = 300'000;
  const std::vector<std::byte> zeros(place.size * kCount * 2);
  void* const in = (*rank)->Put(zeros);
  void* const out = (*rank)->Put(zeros);
  for (int calls = 0;; ++calls) {
    const Status done = (*rank)->Await(call.call(**rank, in, out, kCount));
    if (!done.ok()) {
      Say(fmt::format("{}: {}", absl::StatusCodeToString(done.code()), Message(done)));
      return 0;
    }
    if (calls == 3) Say("ready");
  }
}

int Main(int argc, char** argv) {
  const auto& backends = Backends();
  const auto backend = std::ranges::find(backends, std::string(argv[1]), &Backend::name);
  const auto call = std::ranges::find(AllCalls(), std::string(argv[4]), &NamedCall::name);
  if (backend == backends.end() || call == AllCalls().end()) return 2;
  const Place place{static_cast<uint32_t>(std::atoi(argv[3])),
                    static_cast<uint32_t>(std::atoi(argv[2]))};
  return Run(*backend, place, *call, argc == 6 ? argv[5] : "");
}

}  // namespace
}  // namespace longhaul::collective

int main(int argc, char** argv) {
  return argc >= 5 ? longhaul::collective::Main(argc, argv) : 2;
}
