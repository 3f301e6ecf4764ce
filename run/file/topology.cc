#include "run/file/topology.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "base/nearest.h"
#include "base/yaml/yaml_text.h"
#include "run/file/run_spec.h"
#include "run/file/topology_fields.h"

namespace longhaul {
namespace config {
namespace {

constexpr size_t kLongestName = 64;
constexpr size_t kMostRegions = 64;
constexpr size_t kMostWorkers = 1024;

std::optional<std::string> ReadName(Reader& reader, const YAML::Node& node, const std::string& path,
                                    const char* expected) {
  auto name = ReadScalar(reader, node, path, expected);
  if (name && (name->empty() || name->size() > kLongestName)) {
    reader.FailExpected(node, path,
                        fmt::format("{} of 1 to {} characters", expected, kLongestName));
    return std::nullopt;
  }
  return name;
}

// The percentage that ParseLoss makes this very number of.
double Percent(double loss) {
  const double about = loss * 100;
  for (const double percent : {about, std::nextafter(about, 0.0), std::nextafter(about, 100.0)}) {
    if (percent / 100 == loss) return percent;
  }
  return about;
}

class TopologyReader {
 public:
  TopologyReader(Reader& reader, const YAML::Node& node, const std::string& path)
      : reader_(reader), path_(path) {
    const Table table = {
        Part("regions", "a mapping of regions, such as { eu: [worker1, worker2], us: [worker3] }",
             &TopologyReader::ReadRegions),
        Part("links", "a list such as [{ between: [eu, us], rate: 100mbit, delay: 40ms }]",
             &TopologyReader::KeepLinks)};
    if (!node.IsMap()) {
      reader.FailExpected(node, path, "a mapping with regions, links");
      return;
    }
    reader.ReadMap(node, path, table);
    for (const Field& field : table) {
      if (node[field.key]) continue;
      reader.Fail(node, fmt::format("the key '{}.{}' is missing; expected {}", path, field.key,
                                    field.expected));
    }
    // After the regions, whichever stands first.
    if (links_.IsDefined() && !spec_.regions.empty()) ReadLinks();
  }
  const TopologySpec& spec() const { return spec_; }

 private:
  Field Part(std::string key, std::string expected,
             void (TopologyReader::*read)(const YAML::Node&, const std::string&)) {
    Field field;
    field.key = std::move(key);
    field.expected = std::move(expected);
    field.read = [this, read](Reader&, const YAML::Node& node, const std::string& path) {
      (this->*read)(node, path);
    };
    return field;
  }

  void ReadRegions(const YAML::Node& node, const std::string& path) {
    if (!node.IsMap() || node.size() == 0 || node.size() > kMostRegions) {
      reader_.FailExpected(
          node, path, fmt::format("a mapping of 1 to {} regions to their workers", kMostRegions));
      return;
    }
    for (const auto& entry : node) {
      const auto name = ReadName(reader_, entry.first, path, "a region's name");
      if (!name) continue;
      if (FindRegion(*name)) {
        reader_.Fail(entry.first, fmt::format("{}: the region '{}' is here twice", path, *name));
        continue;
      }
      TopologyRegion region{*name, {}};
      ReadWorkers(entry.second, fmt::format("{}.{}", path, *name), &region.workers);
      spec_.regions.push_back(std::move(region));
    }
  }

  void ReadWorkers(const YAML::Node& node, const std::string& path,
                   std::vector<std::string>* workers) {
    if (!node.IsSequence() || node.size() == 0) {
      reader_.FailExpected(node, path, "a list of workers, such as [worker1, worker2]");
      return;
    }
    for (const auto& item : node) {
      const auto name = ReadName(reader_, item, path, "a worker's name");
      if (!name) continue;
      if (!workers_.insert(*name).second) {
        reader_.Fail(item, fmt::format("{}: the worker '{}' is in a region already", path, *name));
      } else if (workers_.size() > kMostWorkers) {
        reader_.Fail(item, fmt::format("{}: more than {} workers", path, kMostWorkers));
        return;
      } else {
        workers->push_back(*name);
      }
    }
  }

  void KeepLinks(const YAML::Node& node, const std::string& path) {
    if (!node.IsSequence()) {
      reader_.FailExpected(node, path, "a list of mappings with between or within");
      return;
    }
    links_.reset(node);
  }

  void ReadLinks() {
    for (size_t i = 0; i < links_.size(); ++i) {
      ReadLink(links_[i], fmt::format("{}.links[{}]", path_, i + 1));
    }
  }

  void ReadLink(const YAML::Node& node, const std::string& path) {
    TopologyLink link;
    std::vector<std::string> ends;
    const Table table = {
        Ends("between", "two regions, such as [eu, us]", 2, &ends),
        Ends("within", "a region", 1, &ends),
        Parsed("rate", &link.bits_per_second, "a rate such as 100mbit", ParseLinkRate),
        Parsed("delay", &link.quality.delay, "a delay such as 40ms", ParseLinkDelay),
        Parsed("jitter", &link.quality.jitter, "a jitter such as 2ms", ParseLinkDelay),
        Parsed("loss", &link.quality.loss, "a percentage such as 0.1%", ParseLoss)};
    reader_.ReadMap(node, path, table);
    if (!node.IsMap()) return;
    const bool between = node["between"].IsDefined(), within = node["within"].IsDefined();
    if (between == within) {
      reader_.Fail(
          node, fmt::format("{}: expected either between: [two regions] or within: region", path));
      return;
    }
    if (!node["rate"] && !node["delay"] && !node["jitter"] && !node["loss"]) {
      reader_.Fail(node, fmt::format("{}: expected a rate, delay, jitter or loss", path));
    }
    if (const Status quality = CheckLinkQuality(link.quality); !quality.ok()) {
      reader_.Fail(node["jitter"], fmt::format("{}.jitter: {}", path, Message(quality)));
    }
    if (ends.size() != (between ? 2u : 1u)) return;  // a problem already
    link.one = ends.front();
    link.other = ends.back();
    CheckEnds(node[between ? "between" : "within"], path, link, between);
    spec_.links.push_back(std::move(link));
  }

  Field Ends(std::string key, const std::string& expected, size_t count,
             std::vector<std::string>* ends) {
    Field field;
    field.key = std::move(key);
    field.expected = expected;
    field.read = [this, count, expected, ends](Reader&, const YAML::Node& node,
                                               const std::string& path) {
      if (count == 1) {
        ReadEnd(node, path, ends);
      } else if (!node.IsSequence() || node.size() != count) {
        reader_.FailExpected(node, path, expected);
      } else {
        for (const auto& item : node) ReadEnd(item, path, ends);
      }
    };
    return field;
  }

  void ReadEnd(const YAML::Node& node, const std::string& path, std::vector<std::string>* ends) {
    const auto name = ReadName(reader_, node, path, "a region's name");
    if (!name) return;
    if (FindRegion(*name)) {
      ends->push_back(*name);
      return;
    }
    std::vector<std::string> known;
    for (const TopologyRegion& region : spec_.regions) known.push_back(region.name);
    const std::string hint = DidYouMean(*name, known);
    reader_.Fail(node, fmt::format("{}: no region '{}'{}", path, *name,
                                   hint.empty() ? "; the regions are " + ListOf(known) : hint));
  }

  void CheckEnds(const YAML::Node& node, const std::string& path, const TopologyLink& link,
                 bool between) {
    if (between && link.one == link.other) {
      reader_.Fail(node, fmt::format("{}: between '{}' and itself; write within: {}", path,
                                     link.one, link.one));
      return;
    }
    const bool known =
        std::any_of(spec_.links.begin(), spec_.links.end(), [&](const TopologyLink& other) {
          return (other.one == link.one && other.other == link.other) ||
                 (other.one == link.other && other.other == link.one);
        });
    if (known) {
      reader_.Fail(node, fmt::format("{}: what lies {} '{}'{} is said already", path,
                                     between ? "between" : "within", link.one,
                                     between ? fmt::format(" and '{}'", link.other) : ""));
    }
  }

  bool FindRegion(const std::string& name) const {
    return std::any_of(spec_.regions.begin(), spec_.regions.end(),
                       [&](const TopologyRegion& region) { return region.name == name; });
  }

  Reader& reader_;
  const std::string path_;
  TopologySpec spec_;
  std::set<std::string> workers_;
  YAML::Node links_{YAML::NodeType::Undefined};
};

}  // namespace

Field Topology(std::optional<TopologySpec>* target) {
  Field field;
  field.key = "topology";
  field.expected = "a mapping with regions, links";
  field.read = [target](Reader& reader, const YAML::Node& node, const std::string& path) {
    *target = TopologyReader(reader, node, path).spec();
  };
  return field;
}

std::string TopologyText(const std::optional<TopologySpec>& topology) {
  if (!topology) return "";
  std::string out = "\nregions:";
  for (const TopologyRegion& region : topology->regions) {
    std::vector<std::string> workers;
    for (const std::string& worker : region.workers) workers.push_back(Quote(worker));
    out += fmt::format("\n  {}: [{}]", Quote(region.name), ListOf(workers));
  }
  out += topology->links.empty() ? "\nlinks: []" : "\nlinks:";
  for (const TopologyLink& link : topology->links) {
    out += link.one == link.other
               ? fmt::format("\n  - {{ within: {}", Quote(link.one))
               : fmt::format("\n  - {{ between: [{}, {}]", Quote(link.one), Quote(link.other));
    out += link.bits_per_second == 0 ? ", rate: unlimited"
                                     : fmt::format(", rate: {}bit", link.bits_per_second);
    out += fmt::format(", delay: {}, jitter: {}, loss: {}% }}", Exact(link.quality.delay),
                       Exact(link.quality.jitter), Percent(link.quality.loss));
  }
  return out;
}

}  // namespace config

StatusOr<TopologySpec> ParseTopologyFile(std::string_view yaml, std::string_view file_name) {
  try {
    LH_ASSIGN_OR_RETURN(const YAML::Node root, config::LoadYaml(yaml, file_name));
    std::optional<TopologySpec> topology;
    if (root.IsMap() && root.size() == 1 && root["topology"]) {
      config::Reader reader{std::string(file_name)};
      reader.ReadMap(root, "", {config::Topology(&topology)});
      LH_RETURN_IF_ERROR(reader.ToStatus());
    } else {
      LH_ASSIGN_OR_RETURN(RunSpec spec, ParseRunSpec(yaml, file_name, {}));
      topology = std::move(spec.topology);
    }
    if (topology) return *std::move(topology);
    return InvalidArgument(
        "{}: the key 'topology' is missing; expected a mapping with regions, links", file_name);
  } catch (const std::exception& error) {
    return InvalidArgument("{}: {}", file_name, error.what());
  }
}

}  // namespace longhaul
