// zip and taco over the host's collectives, and a switcher of the host's and zip.
#include "tests/conformance/collective/compressed.h"
#include "tests/conformance/collective/group.h"
#include "transport/collective/host/factory.h"
#include "transport/collective/switcher/factory.h"

namespace longhaul::collective {
namespace {

// Takes zip for all that zip may be taken for, and its ranks agree every few calls.
StatusOr<std::unique_ptr<Communicator>> MakeSwitcher(std::shared_ptr<Member> member, Memory&,
                                                     const RankSettings& settings,
                                                     Deadline deadline) {
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> native,
                      host::Create(member, {.call_limit = settings.call_limit}, deadline));
  LH_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> zipped,
                      zip::Create(native, nullptr, {.call_limit = settings.call_limit}));
  return switcher::Create(
      std::move(member), std::move(native), {{"zip", std::move(zipped)}}, nullptr,
      {.margin = -0.99, .agree_every = 3, .probe_limit = absl::ZeroDuration()}, deadline);
}

}  // namespace

const std::vector<Backend>& Backends() {
  static const auto* const backends = [] {
    auto* const rows = new std::vector<Backend>;
    for (const Compression& compression : Compressions(/*pieces=*/false)) {
      rows->push_back(
          {.name = compression.name + "_over_host",
           .max_ranks = 4,
           .rank_order = compression.sum_error == 0,
           .sum_error = compression.sum_error,
           .copy_error = compression.copy_error,
           .names_mismatches = false,
           .memory = [](uint32_t) { return NewHostMemory(); },
           .create = [compression](std::shared_ptr<Member> member, Memory&,
                                   const RankSettings& settings,
                                   Deadline deadline) -> StatusOr<std::unique_ptr<Communicator>> {
             LH_ASSIGN_OR_RETURN(
                 std::shared_ptr<Communicator> below,
                 host::Create(std::move(member), {.call_limit = settings.call_limit}, deadline));
             return compression.create(std::move(below), nullptr, settings.call_limit);
           }});
    }
    rows->push_back({.name = "switcher_over_host",
                     .max_ranks = 4,
                     .names_mismatches = false,
                     .memory = [](uint32_t) { return NewHostMemory(); },
                     .create = MakeSwitcher});
    return rows;
  }();
  return *backends;
}

}  // namespace longhaul::collective
