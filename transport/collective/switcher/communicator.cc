#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "transport/collective/switcher/factory.h"
#include "transport/collective/switcher/model.h"
#include "transport/collective/switcher/probe.h"
#include "transport/collective/switcher/start.h"

namespace longhaul::collective::switcher {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kAgreeLimit = absl::Minutes(5);
// In units of Options::agree_every: of all calls, when ranks agree although no alternative is
// called; after how many an alternative's ratio is forgotten.
constexpr uint64_t kQuietPeriod = 16, kForgetPeriod = 64;
// All-to-alls with parts of their own, before the ranks first agree on their size.
constexpr uint64_t kFirstParts = 8;
constexpr size_t kMostAlternatives = 8;
constexpr size_t kDtypes = 4;
constexpr char kNative[] = "native";

// An operation of a dtype.
struct Entry {
  Probe probe;
  std::vector<Range> ranges;
  // Below this, ranges has nothing to say but its first line: the usual way out.
  uint64_t first_end = std::numeric_limits<uint64_t>::max();
  // By line: since the beginning; and since ranks last agreed.
  std::vector<uint64_t> calls, bytes, sent, tensor;
  std::vector<uint64_t> last;                 // number of the last call
  std::vector<std::optional<double>> ratios;  // as agreed; none: the probe's
  // For AllToAllV: what was moved since the ranks agreed, and what they agreed on.
  uint64_t parts_calls = 0, parts_bytes = 0;
  uint64_t agreed_bytes = 0;

  size_t ChooseFor(uint64_t size) const {
    return size < first_end ? ranges[0].line : Choose(ranges, size);
  }
};

uint64_t Times(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<uint64_t>::max() : product;
}

class SwitcherCommunicator final : public Switcher {
 public:
  // `communicators`: the native one first, with the names of all.
  SwitcherCommunicator(std::shared_ptr<Member> member,
                       std::vector<std::shared_ptr<Communicator>> communicators,
                       std::vector<std::string> names, const Options& options,
                       std::vector<Probe> probes, std::string origin)
      : member_(std::move(member)),
        communicators_(std::move(communicators)),
        names_(std::move(names)),
        options_(options),
        origin_(std::move(origin)),
        used_(communicators_.size(), false),
        since_(communicators_.size(), 0) {
    for (Probe& probe : probes) {
      auto entry = std::make_unique<Entry>();
      for (auto* of_lines :
           {&entry->calls, &entry->bytes, &entry->sent, &entry->tensor, &entry->last}) {
        of_lines->resize(communicators_.size());
      }
      entry->ratios.resize(communicators_.size());
      entry->probe = std::move(probe);
      entries_[Slot(entry->probe.op, entry->probe.dtype)] = std::move(entry);
    }
    Rebuild();
  }

  uint32_t rank() const override { return native().rank(); }
  uint32_t size() const override { return native().size(); }
  int device() const override { return native().device(); }
  std::string Describe() const override {
    return fmt::format("switcher of {} and {}", native().Describe(),
                       fmt::join(names_.begin() + 1, names_.end(), ", "));
  }

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    const auto make = [&](Communicator& c) {
      return c.AllReduce(in, out, count, dtype, reduction, queue);
    };
    if (reduction != Reduction::kSum) return make(*communicators_[0]);
    return Route(Op::kAllReduce, dtype, Times(count, BytesPerElement(dtype)), make);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    const auto make = [&](Communicator& c) {
      return c.ReduceScatter(in, out, count, dtype, reduction, queue);
    };
    if (reduction != Reduction::kSum) return make(*communicators_[0]);
    return Route(Op::kReduceScatter, dtype, BytesOfParts(count, dtype), make);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Route(Op::kAllGather, dtype, BytesOfParts(count, dtype),
                 [&](Communicator& c) { return c.AllGather(in, out, count, dtype, queue); });
  }
  Status AllToAll(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    return Route(Op::kAllToAll, dtype, BytesOfParts(count, dtype),
                 [&](Communicator& c) { return c.AllToAll(in, out, count, dtype, queue); });
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    const auto make = [&](Communicator& c) {
      return c.AllToAllV(in, send, out, receive, dtype, queue);
    };
    Entry* const entry = EntryOf(Op::kAllToAll, dtype);
    if (entry == nullptr) return make(*communicators_[0]);
    uint64_t sent = 0, received = 0;
    for (const Block& block : send) sent += block.count;
    for (const Block& block : receive) received += block.count;
    const uint64_t bytes = std::max(sent, received) * BytesPerElement(dtype);
    ++entry->parts_calls;
    entry->parts_bytes += bytes;
    const size_t line = entry->agreed_bytes > 0 ? entry->ChooseFor(entry->agreed_bytes) : 0;
    LH_RETURN_IF_ERROR(CallOn(entry, line, bytes, make));
    const uint64_t due = entry->agreed_bytes > 0 ? options_.agree_every
                                                 : std::min(kFirstParts, options_.agree_every);
    return entry->parts_calls >= due ? Agree() : absl::OkStatus();
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    return communicators_[0]->Broadcast(data, count, dtype, root, queue);
  }
  Status Barrier(Queue queue) override { return communicators_[0]->Barrier(queue); }

  // What may be taken for such a call, whatever ratios come to be.
  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(communicators_[0]->Prepare(op, count, dtype));
    const Entry* const entry = EntryOf(op, dtype);
    if (entry == nullptr) return absl::OkStatus();
    const auto bytes = static_cast<double>(Times(count, BytesPerElement(dtype)));
    for (size_t k = 1; k < communicators_.size(); ++k) {
      const std::optional<double> from = WinsFrom(entry->probe.points, k, options_.margin);
      if (!from.has_value() || *from > bytes) continue;
      LH_RETURN_IF_ERROR(communicators_[k]->Prepare(op, count, dtype));
    }
    return absl::OkStatus();
  }

  // An alternative's own faults are known to itself alone.
  Status Wait(Queue queue, Deadline deadline) override {
    Status result;
    bool waited = false;
    for (size_t k = communicators_.size(); k-- > 1;) {
      if (!used_[k]) continue;
      const Status one = communicators_[k]->Wait(queue, deadline);
      if (result.ok()) result = one;
      waited = true;
      used_[k] = options_.recorded;  // a replay calls nothing here
    }
    if (waited && !used_[0]) return result;
    const Status one = communicators_[0]->Wait(queue, deadline);
    used_[0] = false;
    return result.ok() ? one : result;
  }
  Status fault() override {
    Status first;
    for (const auto& communicator : communicators_) {
      const Status one = communicator->fault();
      if (first.ok()) first = one;
    }
    return first;
  }
  void Abort(const Status& reason) override { communicators_[0]->Abort(reason); }
  Status status() const override { return native().status(); }

  Stats stats() const override { return stats_; }

  std::vector<Decision> decisions() const override {
    std::vector<Decision> decisions;
    for (const auto& entry : entries_) {
      if (!entry) continue;
      Decision decision{
          .op = entry->probe.op, .dtype = entry->probe.dtype, .ranges = entry->ranges};
      for (size_t k = 0; k < communicators_.size(); ++k) {
        const Fit fit = FitNow(*entry, k);
        decision.lines.push_back({.name = names_[k],
                                  .start_seconds = fit.start,
                                  .seconds_per_byte = fit.per_byte,
                                  .ratio = RatioNow(*entry, k),
                                  .calls = entry->calls[k],
                                  .bytes = entry->bytes[k]});
      }
      decisions.push_back(std::move(decision));
    }
    return decisions;
  }
  std::string origin() const override { return origin_; }

 private:
  static size_t Slot(Op op, Dtype dtype) {
    return static_cast<size_t>(op) * kDtypes + static_cast<size_t>(dtype);
  }
  Entry* EntryOf(Op op, Dtype dtype) const {
    if (op > Op::kAllToAll) return nullptr;
    return entries_[Slot(op, dtype)].get();
  }
  const Communicator& native() const { return *communicators_[0]; }
  uint64_t BytesOfParts(uint64_t count, Dtype dtype) const {
    return Times(count, uint64_t{size()} * BytesPerElement(dtype));
  }

  double RatioNow(const Entry& entry, size_t k) const {
    return entry.ratios[k].value_or(entry.probe.ratios[k]);
  }
  Fit FitNow(const Entry& entry, size_t k) const {
    Fit fit = FitOf(entry.probe.points, k);
    if (k == 0) return fit;
    // What compressed calls send goes as all-to-alls do, twice in an all-reduce.
    const Entry* const wire = EntryOf(Op::kAllToAll, entry.probe.dtype);
    const double per_byte =
        FitOf(wire->probe.points, 0).per_byte * (entry.probe.op == Op::kAllReduce ? 2 : 1);
    fit.per_byte = SlopeOf(fit.per_byte, per_byte, entry.probe.ratios[k]).At(RatioNow(entry, k));
    return fit;
  }
  void Rebuild() {
    for (const auto& entry : entries_) {
      if (!entry) continue;
      std::vector<Candidate> candidates;
      for (size_t k = 0; k < communicators_.size(); ++k) {
        const std::optional<double> from =
            k == 0 ? 0 : WinsFrom(entry->probe.points, k, options_.margin);
        candidates.push_back({FitNow(*entry, k), from.value_or(0), from.has_value()});
      }
      entry->ranges = RangesOf(candidates, options_.margin);
      entry->first_end =
          entry->ranges.size() > 1 ? entry->ranges[1].bytes : std::numeric_limits<uint64_t>::max();
    }
  }

  template <class Make>
  Status Route(Op op, Dtype dtype, uint64_t bytes, const Make& make) {
    Entry* const entry = EntryOf(op, dtype);
    if (entry == nullptr) return CallOn(nullptr, 0, bytes, make);
    return CallOn(entry, entry->ChooseFor(bytes), bytes, make);
  }

  template <class Make>
  Status CallOn(Entry* entry, size_t line, uint64_t bytes, const Make& make) {
    Communicator& communicator = *communicators_[line];
    const Stats before = communicator.stats();
    LH_RETURN_IF_ERROR(make(communicator));
    const Stats after = communicator.stats();
    Add(before, after);
    used_[line] = true;
    ++calls_;
    if (entry == nullptr) return absl::OkStatus();
    ++entry->calls[line];
    entry->bytes[line] += bytes;
    ++since_[line];
    entry->last[line] = calls_;
    // What blobs have sent is not known here; then none was sent, and the probe's ratio stays.
    entry->sent[line] += after.sent_bytes - before.sent_bytes;
    entry->tensor[line] += after.tensor_bytes - before.tensor_bytes;
    const bool due = (line > 0 && since_[line] >= options_.agree_every) ||
                     calls_ - agreed_at_ >= kQuietPeriod * options_.agree_every;
    return due ? Agree() : absl::OkStatus();
  }
  void Add(const Stats& before, const Stats& after) {
    stats_.calls += 1;
    stats_.tensor_bytes += after.tensor_bytes - before.tensor_bytes;
    stats_.sent_bytes += after.sent_bytes - before.sent_bytes;
    stats_.escapes += after.escapes - before.escapes;
  }

  // All ranks come here in the same call. What they say makes the same choices on all.
  Status Agree() {
    agreed_at_ = calls_;
    std::fill(since_.begin(), since_.end(), 0);
    if (options_.recorded || communicators_.size() == 1) return absl::OkStatus();
    // For each entry: for each line the bytes sent and their uncompressed size; then the entry's
    // parts.
    Json word = Json::array();
    for (const auto& entry : entries_) {
      if (!entry) continue;
      const uint64_t calls = std::max<uint64_t>(entry->parts_calls, 1);
      word.push_back({entry->sent, entry->tensor, entry->parts_bytes / calls});
      std::fill(entry->sent.begin(), entry->sent.end(), 0);
      std::fill(entry->tensor.begin(), entry->tensor.end(), 0);
      entry->parts_calls = entry->parts_bytes = 0;
    }
    LH_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                        member_->Tell(word.dump(), Deadline::After(kAgreeLimit)));
    std::vector<Json> all;
    for (size_t rank = 0; rank < words.size(); ++rank) {
      all.push_back(Json::parse(words[rank], nullptr, /*allow_exceptions=*/false));
      if (!all.back().is_array() || all.back().size() != word.size()) {
        return Internal(
            "rank {} told something else where a switcher's ranks agree: all ranks make the same "
            "calls, and tell each other things in the same order",
            rank);
      }
    }
    TakeOver(all);
    Rebuild();
    return absl::OkStatus();
  }

  void TakeOver(const std::vector<Json>& all) {
    size_t place = 0;
    for (const auto& entry : entries_) {
      if (!entry) continue;
      uint64_t most = 0;
      for (const Json& word : all) most = std::max(most, word.at(place).at(2).get<uint64_t>());
      if (most > 0) entry->agreed_bytes = most;
      for (size_t k = 1; k < communicators_.size(); ++k) {
        uint64_t sent = 0, tensor = 0;
        for (const Json& word : all) {
          sent += word.at(place).at(0).at(k).get<uint64_t>();
          tensor += word.at(place).at(1).at(k).get<uint64_t>();
        }
        if (sent > 0 && tensor > 0) {
          entry->ratios[k] = static_cast<double>(tensor) / static_cast<double>(sent);
        } else if (calls_ - entry->last[k] >= kForgetPeriod * options_.agree_every) {
          entry->ratios[k].reset();
        }
      }
      ++place;
    }
  }

  const std::shared_ptr<Member> member_;
  const std::vector<std::shared_ptr<Communicator>> communicators_;
  const std::vector<std::string> names_;
  const Options options_;
  const std::string origin_;
  std::array<std::unique_ptr<Entry>, kOperations.size() * kDtypes> entries_;
  Stats stats_;
  uint64_t calls_ = 0, agreed_at_ = 0;
  // Both have an entry for each communicator.
  std::vector<bool> used_;       // since the last Wait
  std::vector<uint64_t> since_;  // calls since then
};

Status Check(const Communicator& native, const std::vector<Alternative>& alternatives,
             const Options& options) {
  const auto invalid = [](const std::string& what) { return absl::InvalidArgumentError(what); };
  if (alternatives.size() > kMostAlternatives) {
    return invalid(fmt::format("expected at most {} alternatives, got {}", kMostAlternatives,
                               alternatives.size()));
  }
  for (size_t k = 0; k < alternatives.size(); ++k) {
    const std::string& name = alternatives[k].name;
    const auto& communicator = alternatives[k].communicator;
    const bool twice =
        std::any_of(alternatives.begin(), alternatives.begin() + static_cast<long>(k),
                    [&](const Alternative& other) { return other.name == name; });
    if (name.empty() || name == kNative || twice) {
      return invalid(fmt::format("expected names of their own for alternatives, got '{}'", name));
    }
    if (communicator->device() != native.device() || communicator->size() != native.size() ||
        communicator->rank() != native.rank()) {
      return invalid(fmt::format("{} ({}) is not of the same rank and device as {}", name,
                                 communicator->Describe(), native.Describe()));
    }
  }
  if (!(options.margin > -1 && options.margin < 1e6)) {
    return invalid(fmt::format("expected a margin above -1, got {}", options.margin));
  }
  if (options.agree_every == 0) return invalid("expected agree_every of at least 1, got 0");
  for (const Dtype dtype : options.dtypes) {
    if (dtype == Dtype::kBytes ||
        std::count(options.dtypes.begin(), options.dtypes.end(), dtype) != 1) {
      return invalid("expected dtypes of numbers, each once");
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<Switcher>> Create(std::shared_ptr<Member> member,
                                           std::shared_ptr<Communicator> native,
                                           std::vector<Alternative> alternatives,
                                           const cuda::Device* device, const Options& options,
                                           Deadline deadline) {
  LH_RETURN_IF_ERROR(Check(*native, alternatives, options));
  if ((device == nullptr ? -1 : device->index()) != native->device()) {
    return InvalidArgument("{} does not take memory of {}", native->Describe(),
                           device == nullptr ? "the host" : device->Name());
  }
  std::vector<std::shared_ptr<Communicator>> communicators = {std::move(native)};
  std::vector<std::string> names = {kNative};
  for (Alternative& alternative : alternatives) {
    communicators.push_back(std::move(alternative.communicator));
    names.push_back(std::move(alternative.name));
  }
  Known known{.probes = {}, .origin = "nothing to choose from"};
  if (communicators.size() > 1 && communicators[0]->size() > 1) {
    LH_ASSIGN_OR_RETURN(known,
                        Learn(member.get(), communicators, names, device, options, deadline));
  }
  return std::make_unique<SwitcherCommunicator>(std::move(member), std::move(communicators),
                                                std::move(names), options, std::move(known.probes),
                                                std::move(known.origin));
}

}  // namespace longhaul::collective::switcher
