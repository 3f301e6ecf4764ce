// Generates text by a model that a tensor-parallel group computes. A model whose ranks have
// channels of their own (GroupSpec::shared_channels below 1) is computed by just as many ranks as
// have trained it. Each rank has a thread and a cache of its own heads.
//
// Threads: as for a Generator; the ranks' threads belong to it. Errors: as for a Generator, and
// those of the communicators. An error of a rank ends the group: all later calls fail.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "worker/stage/generator.h"
#include "worker/stage/group/communicators.h"

namespace longhaul::worker {

// `devices`: one for each rank of `group`, at least 2; `options.device` is not read. `read`: as for
// Generator::Create. kInvalidArgument: the model cannot be split over this number of ranks.
StatusOr<std::unique_ptr<Generator>> MakeGroupGenerator(
    const GeneratorOptions& options, const GroupSpec& group, const std::vector<DeviceName>& devices,
    const ReadParameter& read, const MakeCommunicators& make_communicators);

}  // namespace longhaul::worker
