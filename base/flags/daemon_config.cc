#include "base/flags/daemon_config.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/yaml/yaml_reader.h"

namespace longhaul {
namespace {

using config::Field;
using config::Reader;
using config::Table;

bool IsConfigItself(const std::string& name) {
  return name == "config" || name == "help" || name == "help-all" || name == "version";
}

// Values as a command line would have them.
std::vector<std::string> Scalars(Reader& reader, const YAML::Node& node, const std::string& path,
                                 const CLI::Option& option) {
  const bool list = option.get_expected_max() > 1 || option.get_items_expected_max() > 1;
  const std::string_view expected = list ? "a value or a list of values" : "a value";
  std::vector<std::string> values;
  if (list && node.IsSequence()) {
    for (const auto& item : node) {
      const auto text = config::ReadScalar(reader, item, path, expected);
      if (text) values.push_back(*text);
    }
  } else if (const auto text = config::ReadScalar(reader, node, path, expected)) {
    values.push_back(*text);
  }
  return values;
}

// Hands what the file says to the option, whose own checks decide whether it is right.
void SetOption(Reader& reader, const YAML::Node& node, const std::string& path,
               CLI::Option* option) {
  const std::vector<std::string> values = Scalars(reader, node, path, *option);
  if (values.empty() || !option->empty()) return;
  const bool flag = option->get_expected_max() == 0 || option->get_type_size() == 0;
  try {
    if (flag && values[0] != "true" && values[0] != "false") {
      reader.FailExpected(node, path, "true or false");
      return;
    }
    if (flag && values[0] == "false") return;
    for (const std::string& value : values) option->add_result(value);
    option->run_callback();
  } catch (const CLI::Error& error) {
    option->clear();
    reader.Fail(node, fmt::format("{}: {}", path, error.what()));
  }
}

class YamlConfig : public CLI::Config {
 public:
  explicit YamlConfig(CLI::App* app) : app_(app) {}

  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

  // Sets the options itself, because the library's own way has no lines for messages.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
    const auto file = app_->get_config_ptr()->as<std::string>();
    const Status status = Apply(text, file);
    if (!status.ok()) {
      throw CLI::ConfigError(std::string(Message(status)), CLI::ExitCodes::ConfigError);
    }
    return {};
  }

 private:
  Status Apply(std::string_view text, const std::string& file) const {
    LH_ASSIGN_OR_RETURN(const YAML::Node root, config::LoadYaml(text, file));
    Table table;
    for (CLI::Option* option : app_->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        if (IsConfigItself(name)) continue;
        Field field;
        field.key = name;
        field.read = [option](Reader& reader, const YAML::Node& node, const std::string& path) {
          SetOption(reader, node, path, option);
        };
        table.push_back(field);
      }
    }
    Reader reader(file);
    reader.ReadMap(root, "", table);
    return reader.ToStatus();
  }

  CLI::App* app_;
};

}  // namespace

void AddYamlConfig(CLI::App& app) {
  app.set_config("--config", "",
                 "Read flags from this YAML file; its keys are the flags' long names")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.config_formatter(std::make_shared<YamlConfig>(&app));
}

}  // namespace longhaul
