#include "run/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace longhaul {
namespace {

// One line a problem.
class Problems {
 public:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += (text_.empty() ? "" : "\n") + fmt::format(format, std::forward<Args>(args)...);
  }
  Status ToStatus() const {
    return text_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text_);
  }

 private:
  std::string text_;
};

void CheckCells(const Assignment& assignment, Problems* problems) {
  if (assignment.cells.empty()) problems->Add("expected an assignment with cells, got none");
  for (size_t i = 1; i < assignment.cells.size(); ++i) {
    if (assignment.cells[i - 1].id < assignment.cells[i].id) continue;
    problems->Add("expected cells in the order of their ids, got {} behind {}",
                  ToString(assignment.cells[i].id), ToString(assignment.cells[i - 1].id));
  }
  for (const Cell& cell : assignment.cells) {
    if (cell.setting.depth == 0) {
      problems->Add("expected a depth of at least 1 in {}, got 0", ToString(cell.id));
    }
    if (cell.layers.count == 0) problems->Add("expected layers in {}, got none", ToString(cell.id));
  }
}

void CheckEdges(const Assignment& assignment, Problems* problems) {
  for (size_t i = 1; i < assignment.edges.size(); ++i) {
    if (assignment.edges[i - 1].id < assignment.edges[i].id) continue;
    problems->Add("expected edges in the order of their ids, got {} behind {}",
                  assignment.edges[i].id.value(), assignment.edges[i - 1].id.value());
  }
  for (const Edge& edge : assignment.edges) {
    const Cell *from = assignment.Find(edge.from), *to = assignment.Find(edge.to);
    if (from == nullptr || to == nullptr) {
      problems->Add("expected edge {} between cells of the assignment, got {} and {}",
                    edge.id.value(), ToString(edge.from), ToString(edge.to));
      continue;
    }
    if (edge.kind != EdgeKind::kActivations) continue;
    if (from->layers.end() != to->layers.first) {
      problems->Add("expected the layers of {} to begin with {}, got {}", ToString(edge.to),
                    from->layers.end(), to->layers.first);
    }
  }
}

// Along the activations from `first`: the number of each stage says how many are above it, and the
// least depth above bears its lead.
void CheckChainFrom(const Assignment& assignment, const Cell& first, Problems* problems) {
  const Cell* shallowest = nullptr;
  const Cell* cell = &first;
  for (uint32_t above = 0; above < assignment.cells.size(); ++above) {
    if (cell->id.stage != above || cell->id.replica != first.id.replica) {
      problems->Add("expected stage {} of replica {} below {} others, got {}", above,
                    first.id.replica, above, ToString(cell->id));
      return;
    }
    if (shallowest != nullptr && cell->setting.activation_lead > shallowest->setting.depth) {
      problems->Add(
          "expected a depth of {}'s activation lead, {}, in all stages above it, got {} in {}",
          ToString(cell->id), cell->setting.activation_lead, shallowest->setting.depth,
          ToString(shallowest->id));
    }
    if (shallowest == nullptr || cell->setting.depth < shallowest->setting.depth) shallowest = cell;
    const Edge* edge = assignment.Outgoing(cell->id, EdgeKind::kActivations);
    if (edge == nullptr) return;
    cell = assignment.Find(edge->to);
    if (cell == nullptr) return;  // said of the edge
  }
}

// A cell has one way in and one way out, and what it holds says where it stands.
void CheckChains(const Assignment& assignment, Problems* problems) {
  for (const Cell& cell : assignment.cells) {
    uint32_t in = 0, out = 0;
    for (const Edge* edge : assignment.EdgesOf(cell.id, EdgeKind::kActivations)) {
      ++(edge->to == cell.id ? in : out);
    }
    if (in != (cell.roles.embedding ? 0 : 1) || out != (cell.roles.head ? 0 : 1)) {
      problems->Add("expected {} links up and {} down at {}, got {} and {}",
                    cell.roles.embedding ? 0 : 1, cell.roles.head ? 0 : 1, ToString(cell.id), in,
                    out);
      return;  // what is above it may be a circle
    }
  }
  for (const Cell& cell : assignment.cells) {
    if (cell.roles.embedding) CheckChainFrom(assignment, cell, problems);
  }
}

template <typename Items, typename Matches>
auto* FindIn(Items& items, const Matches& matches) {
  const auto found = std::find_if(items.begin(), items.end(), matches);
  return found == items.end() ? nullptr : &*found;
}

}  // namespace

Stamp StampOf(std::string_view hash) {
  if (hash.size() < sizeof(uint64_t)) return Stamp();
  uint64_t stamp = 0;
  for (size_t i = 0; i < sizeof(stamp); ++i) {
    stamp |= uint64_t{static_cast<uint8_t>(hash[i])} << (8 * i);
  }
  return Stamp(stamp);
}

std::string ToString(const CellId& id) {
  if (id.replica == 0) return fmt::format("stage {}", id.stage);
  return fmt::format("stage {} of replica {}", id.stage, id.replica);
}

std::string ShortName(const CellId& id, bool of_replicas) {
  return of_replicas ? fmt::format("{}:{}", id.replica, id.stage) : fmt::format("{}", id.stage);
}

uint32_t ThreadsOfRank(uint32_t wanted, uint32_t ranks, uint32_t cores) {
  if (ranks == 1 || cores == 0) return wanted;
  return std::min(wanted, std::max(cores / ranks, 1u));
}

std::string GroupText(const Group& group, std::string_view device_kind,
                      std::span<const uint32_t> devices) {
  std::string numbers;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[end - 1] + 1) ++end;
    numbers += fmt::format("{}{}", numbers.empty() ? "" : ", ", devices[i]);
    if (end - i > 1) numbers += fmt::format("-{}", devices[end - 1]);
    i = end;
  }
  return fmt::format("{} rank{}{} on {} {}", group.tensor, group.tensor == 1 ? "" : "s",
                     group.expert > 1 ? fmt::format(", experts in {} parts,", group.expert) : "",
                     device_kind.empty() ? "devices" : device_kind, numbers);
}

const Endpoint* Cell::EndpointOf(std::string_view transport) const {
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.transport == transport) return &endpoint;
  }
  return nullptr;
}

size_t Assignment::PlaceOf(const CellId& id) const {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [&](const Cell& cell) { return cell.id == id; });
  return static_cast<size_t>(found - cells.begin());
}
const Cell* Assignment::Find(const CellId& id) const {
  return FindIn(cells, [&](const Cell& cell) { return cell.id == id; });
}
Cell* Assignment::Find(const CellId& id) {
  return FindIn(cells, [&](const Cell& cell) { return cell.id == id; });
}
const Edge* Assignment::Find(EdgeId id) const {
  return FindIn(edges, [&](const Edge& edge) { return edge.id == id; });
}
Edge* Assignment::Find(EdgeId id) {
  return FindIn(edges, [&](const Edge& edge) { return edge.id == id; });
}

std::vector<const Edge*> Assignment::EdgesOf(const CellId& cell, EdgeKind kind) const {
  std::vector<const Edge*> found;
  for (const Edge& edge : edges) {
    if (edge.kind == kind && (edge.from == cell || edge.to == cell)) found.push_back(&edge);
  }
  return found;
}

const Edge* Assignment::Incoming(const CellId& cell, EdgeKind kind) const {
  return FindIn(edges, [&](const Edge& edge) { return edge.kind == kind && edge.to == cell; });
}

const Edge* Assignment::Outgoing(const CellId& cell, EdgeKind kind) const {
  return FindIn(edges, [&](const Edge& edge) { return edge.kind == kind && edge.from == cell; });
}

bool Assignment::HasReplicas() const {
  return !cells.empty() && cells.back().id.replica > 0;  // they are in order
}

Status CheckAssignment(const Assignment& assignment) {
  Problems problems;
  CheckCells(assignment, &problems);
  CheckEdges(assignment, &problems);
  CheckChains(assignment, &problems);
  return problems.ToStatus();
}

}  // namespace longhaul
