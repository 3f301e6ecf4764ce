#include "tests/sim/coordinator/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::coordinator::sim {
namespace {

uint64_t Mix(const EpochKey& key, uint64_t step, uint64_t stage) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x100000001b3;
    hash ^= hash >> 29;
  };
  for (const char c : key.run) add(static_cast<unsigned char>(c));
  add(key.epoch);
  add(key.stamp);
  add(step);
  add(stage);
  return hash;
}

}  // namespace

void World::Blame(size_t worker, absl::Duration length) {
  MonoTime& when = fault_of[WorkerName(worker)];
  when = std::max(when, timeline.now() + length);
  fault_began[WorkerName(worker)] = timeline.now();
}

double World::LossAt(const EpochKey& key, uint64_t step) const {
  const double wrong_by = miscomputed.contains({key, step}) ? 1e-9 : 0;
  return LossOf(steps_repeat ? EpochKey{.run = key.run} : key, step) + wrong_by;
}

std::string World::IdOf(size_t worker) const {
  const uint64_t lost = machines_lost[worker];
  return "id-" + WorkerName(worker) + (lost == 0 ? "" : fmt::format("-{}", lost));
}

size_t World::IndexOf(const std::string& id) const {
  // "id-w12" or "id-w12-3".
  return std::stoul(id.substr(std::string_view("id-w").size())) - 1;
}

bool World::StoreIsAway() {
  if (!random.Chance(faults.store_away)) return false;
  fault_of["the object store"] = timeline.now();
  return true;
}

MonoTime World::LastFault() const {
  MonoTime last;
  for (const auto& [who, when] : fault_of) last = std::max(last, when);
  for (const auto& [worker, when] : moved_at) last = std::max(last, when);
  return last;
}

std::string World::AddressOf(size_t worker) const {
  return fmt::format("{}:{}", WorkerName(worker), 1 + moves[worker]);
}

bool World::Finds(const EpochTruth& epoch, const CellId& a, const CellId& b) const {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    const auto& dials = epoch.members.at(from).dials;
    const auto known = dials.find(to);
    if (known != dials.end()) return known->second == AddressOf(epoch.members.at(to).worker);
  }
  return true;
}

double RateOf(const EpochKey& key, size_t from, size_t to) {
  return 1e6 + static_cast<double>(Mix({key.run, key.epoch}, 2'000'000 + from, 2'000'000 + to) %
                                   1'000'000);
}

double ForwardSecondsOf(const EpochKey& key, uint64_t step) {
  return 0.01 * static_cast<double>(1 + Mix({key.run, key.epoch}, 3'000'000, step / 20) % 3);
}

std::optional<Plan> AnyRetune(const RunSpec& spec, const Plan& plan) {
  const EpochKey key{plan.assignment.run.value(), plan.assignment.epoch.value()};
  if (Mix(key, 5'000'000, plan.retunes) % 4 == 0) return std::nullopt;
  Plan other = plan;
  other.retunes = plan.retunes + 1;
  other.retune_reason = "it is another day";
  uint32_t most = spec.train.microbatches;
  for (Cell& cell : other.assignment.cells) {
    const uint64_t mix = Mix(key, 4'000'000 + other.retunes, cell.id.stage);
    // Often as much as can be, where mistakes show.
    cell.setting.depth = 1 + static_cast<uint32_t>(mix % spec.train.microbatches);
    cell.setting.activation_lead = cell.roles.embedding ? 0
                                   : mix / 64 % 2 == 0  ? most
                                                        : static_cast<uint32_t>(mix / 128 % most);
    most = std::min(most, cell.setting.depth);
  }
  return other;
}

double LossOf(const EpochKey& key, uint64_t step) {
  return 1 + static_cast<double>(Mix(key, step, 1'000'000) % 1'000'000) * 1e-6;
}

std::string ShardHash(const EpochKey& key, const ShardName& name) {
  const uint64_t mix = Mix(key, name.step, name.stage + 100 * name.replica);
  return fmt::format("{:016x}{:016x}{:016x}{:016x}", mix, mix, mix, mix);
}

}  // namespace longhaul::coordinator::sim
