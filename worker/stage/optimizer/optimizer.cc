#include "worker/stage/optimizer/optimizer.h"

#include <algorithm>
#include <iterator>

#include "worker/stage/optimizer/adamw.h"
#include "worker/stage/optimizer/muon.h"

namespace longhaul::worker {

std::vector<Parameter> Optimizer::SteppedOf(const std::vector<Parameter>& all) {
  std::vector<Parameter> stepped;
  std::ranges::copy_if(all, std::back_inserter(stepped),
                       [](const Parameter& parameter) { return !parameter.balances; });
  return stepped;
}

std::unique_ptr<Optimizer> Optimizer::Create(const TrainSpec& train,
                                             const std::vector<Parameter>& all,
                                             const RankGroup* group) {
  const std::vector<Parameter> parameters = SteppedOf(all);
  switch (train.optimizer.kind) {
    case OptimizerKind::kMuon:
      return std::make_unique<Muon>(train, parameters, group);
    case OptimizerKind::kAdamW:
      break;
  }
  return std::make_unique<AdamW>(train, parameters);
}

}  // namespace longhaul::worker
