#include "coordinator/state/books/digest_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// The most digests of an edge and a direction in a step (worker/pipeline/message_digests.h).
constexpr uint32_t kMostDigests = 256;

uint32_t GroupOf(uint32_t messages) {
  return std::max<uint32_t>(1, messages / kMostDigests + (messages % kMostDigests != 0 ? 1 : 0));
}

bool CarriesTensors(const Edge& edge) {
  return edge.kind == EdgeKind::kActivations || edge.kind == EdgeKind::kTied;
}

// Why `body` is none of this cell's step; "": it is.
std::string WhyNot(const Assignment& assignment, const CellId& cell, uint64_t step,
                   const v1::DigestBody& body) {
  if (body.run_id() != assignment.run.value() || body.epoch() != assignment.epoch.value() ||
      body.stamp() != assignment.stamp().value() || FromProto(body.cell()) != cell ||
      body.step() != step) {
    return fmt::format("they are of {} in step {} of epoch {}", ToString(FromProto(body.cell())),
                       body.step(), body.epoch());
  }
  // Each direction of an edge once, as this cell sees it.
  std::set<std::tuple<uint32_t, bool, bool>> expected, got;
  for (const Edge& edge : assignment.edges) {
    if (!CarriesTensors(edge) || (edge.from != cell && edge.to != cell)) continue;
    const bool is_from = edge.from == cell;
    expected.emplace(edge.id.value(), /*forward=*/true, /*sent=*/is_from);
    expected.emplace(edge.id.value(), /*forward=*/false, /*sent=*/!is_from);
  }
  for (const v1::EdgeDigests& one : body.edges()) {
    got.emplace(one.edge(), one.forward(), one.sent());
    const uint32_t group = GroupOf(one.messages());
    const uint64_t digests = (uint64_t{one.messages()} + group - 1) / group;
    if (static_cast<uint64_t>(one.digests_size()) != digests) {
      return fmt::format("expected {} digests of {} messages over edge {}, got {}", digests,
                         one.messages(), one.edge(), one.digests_size());
    }
  }
  if (got != expected || static_cast<size_t>(body.edges_size()) != expected.size()) {
    return fmt::format("expected the {} edges and directions of {}, got {} others", expected.size(),
                       ToString(cell), body.edges_size());
  }
  return "";
}

}  // namespace

std::optional<uint64_t> DigestBook::LastOf(const CellId& cell) const {
  const auto found = cells_.find(cell);
  return found == cells_.end() ? std::nullopt : std::optional(found->second.step);
}

std::vector<Contradiction> DigestBook::Take(const Assignment& assignment, const VerifySpec& verify,
                                            const CellId& cell, const v1::StepReport& report,
                                            Signature signature) {
  using Kind = Contradiction::Kind;
  const uint64_t step = report.step();
  const std::optional<uint64_t> last = LastOf(cell);
  if (last && step <= *last) return {};
  const auto contradicts = [&](Kind kind, std::string what) {
    return std::vector{
        Contradiction{.kind = kind, .step = step, .cell = cell, .what = std::move(what)}};
  };
  const OfCell before = cells_[cell];
  cells_[cell] = {.step = step, .state_after = std::nullopt};
  if (last && step != *last + 1) {
    return contradicts(Kind::kWithheld, fmt::format("its report of step {} is missing", *last + 1));
  }
  if (!report.has_digests()) return contradicts(Kind::kWithheld, "its report has no digests");
  if (signature == Signature::kBad) return contradicts(Kind::kUnsigned, "");
  v1::DigestBody body;
  if (!body.ParseFromString(report.digests().body())) {
    return contradicts(Kind::kMalformed, "they cannot be read");
  }
  if (std::string why = WhyNot(assignment, cell, step, body); !why.empty()) {
    return contradicts(Kind::kMalformed, std::move(why));
  }
  std::vector<Contradiction> found;
  const bool first = step == assignment.start_step + 1;
  const bool needs_before = !first && verify.DigestsStateOf(step - 1);
  if (body.has_state_before() != needs_before ||
      body.has_state_after() != verify.DigestsStateOf(step)) {
    return contradicts(Kind::kMalformed, "expected digests of the state as the run file says");
  }
  if (body.has_state_after()) cells_[cell].state_after = body.state_after();
  if (body.has_state_before() && before.state_after && body.state_before() != *before.state_after) {
    found.push_back({.kind = Kind::kStateDiffers, .step = step, .cell = cell});
  }
  for (const v1::EdgeDigests& one : body.edges()) {
    if (std::optional<Contradiction> differs = Compare(assignment, step, one)) {
      found.push_back(*std::move(differs));
    }
  }
  DropWaiting(assignment);
  return found;
}

void DigestBook::DropWaiting(const Assignment& assignment) {
  const auto drop = [&](std::map<Key, OneEnd>::iterator end) {
    waiting_bytes_ -= end->second.bytes();
    return waiting_.erase(end);
  };
  // No other end comes of a step that all cells have reported.
  uint64_t whole = UINT64_MAX;
  for (const Cell& cell : assignment.cells) {
    whole = std::min(whole, LastOf(cell.id).value_or(0));
  }
  while (!waiting_.empty() && waiting_.begin()->first.first <= whole) drop(waiting_.begin());
  // The farthest ahead go: whoever makes up steps of the future pushes out none that the run is at.
  while (waiting_bytes_ > kMostWaitingBytes) drop(std::prev(waiting_.end()));
}

std::optional<Contradiction> DigestBook::Compare(const Assignment& assignment, uint64_t step,
                                                 const v1::EdgeDigests& one) {
  const Key key(step, {EdgeId(one.edge()), one.forward()});
  OneEnd mine{.sent = one.sent(),
              .messages = one.messages(),
              .digests = {one.digests().begin(), one.digests().end()}};
  const auto other = waiting_.find(key);
  if (other == waiting_.end()) {
    waiting_bytes_ += mine.bytes();
    waiting_.emplace(key, std::move(mine));
    return std::nullopt;
  }
  const OneEnd theirs = std::move(other->second);
  waiting_bytes_ -= theirs.bytes();
  waiting_.erase(other);
  if (mine.messages == theirs.messages && mine.digests == theirs.digests) return std::nullopt;
  const Edge& edge = *assignment.Find(EdgeId(one.edge()));
  Contradiction differs{.step = step,
                        .cell = one.forward() ? edge.from : edge.to,
                        .edge = edge.id,
                        .receiver = one.forward() ? edge.to : edge.from,
                        .direction = one.forward() ? Direction::kForward : Direction::kBackward,
                        .messages = std::min(mine.messages, theirs.messages)};
  if (mine.messages != theirs.messages) {
    differs.first = differs.last = differs.messages;
    return differs;
  }
  const auto at = std::ranges::mismatch(mine.digests, theirs.digests).in1;
  const auto entry = static_cast<uint32_t>(at - mine.digests.begin());
  const uint32_t group = GroupOf(mine.messages);
  differs.first = entry * group;
  differs.last = std::min(differs.first + group, mine.messages) - 1;
  return differs;
}

}  // namespace longhaul::coordinator
