// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/jinja/template.h"

#include <gtest/gtest.h>

#include "skein/core/testing.h"
#include "skein/text/jinja/json_value.h"

namespace skein::text::jinja {
namespace {

// `variables` is a JSON object.
std::string render(std::string_view source, std::string_view variables = "{}") {
  return Template(source, "t.jinja").render(*value_of_json(variables).dict()).text;
}

std::string refusal_of(std::string_view source, std::string_view variables = "{}") {
  return refusal<TemplateError>([&] { render(source, variables); });
}

TEST(Template, PrintsAsPython) {
  EXPECT_EQ(
      render("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 0.1 }} {{ 1e-5 }} {{ 10 / 4 }} {{ x }}",
             R"({"x": [505.887757444319, 1e22, 123456789012345680.0, -0.0001]})"),
      "True None 1.0 1e+16 0.1 1e-05 2.5 [505.887757444319, 1e+22, 1.2345678901234568e+17, "
      "-0.0001]");
  EXPECT_EQ(render(R"({{ ['a', "b'c", 1, none, {'k': (1,)}] }})"),
            R"(['a', "b'c", 1, None, {'k': (1,)}])");
  EXPECT_EQ(render("{{ x }}", R"({"x": ["\u00e9", "\n\u200b", "\\"]})"),
            "['é', '\\n\\u200b', '\\\\']");
  EXPECT_EQ(render("{{ missing }}|{{ x.missing }}", R"({"x": {}})"), "|");
}

TEST(Template, HasPythonsTruth) {
  EXPECT_EQ(render("{% for x in xs %}{{ 'y' if x else 'n' }}{% endfor %}",
                   R"({"xs": [0, 1, "", "a", [], [0], {}, {"a": 0}, null, false, true, 0.0]})"),
            "nynynynynnyn");
  EXPECT_EQ(render("{{ missing and 1 }}{{ '' or 'b' }}{{ 'a' and 'b' }}{{ not [] }}"), "bbTrue");
}

TEST(Template, ControlsWhiteSpaceAsTransformersSetsIt) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("a  {%- if true -%}  b  {%- endif %}  c"), "ab  c");
  EXPECT_EQ(render("a\n  {%+ if true +%}\nb{% endif %}"), "a\n  \nb");
  EXPECT_EQ(render("  {{- 1 -}}  2\n{# c #}\n3\n\n"), "12\n3\n");
  EXPECT_EQ(render("{% set x = 1 %}\n\n x"), "\n x");
  EXPECT_EQ(render("a\r\nb\rc"), "a\nb\nc");
  EXPECT_EQ(render("{% raw %}\n{{ x }}{% endraw %}\n!"), "\n{{ x }}!");
}

TEST(Template, LoopsKnowTheirPlace) {
  EXPECT_EQ(render("{% for x in 'abc' %}{{ loop.index }}{{ loop.first }}{{ loop.last }}"
                   "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.revindex0 }} {% endfor %}"),
            "1TrueFalseb2 2FalseFalseac1 3FalseTrueb0 ");
  EXPECT_EQ(render("{% for x in range(10) if x % 2 %}{{ loop.length }}{{ x }}{% endfor %}"),
            "5153555759");
  EXPECT_EQ(render("{% for x in [] %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}"), "a1");
  EXPECT_EQ(render("{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}"
                   "{% if x == 3 %}{% break %}{% endif %}{% endfor %}"),
            "023");
}

TEST(Template, ScopesEndWithTheirLoop) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 9 %}{% endfor %}{{ x }}"),
            "111");
  EXPECT_EQ(render("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}"
                   "{% endfor %}{{ n.x }}"),
            "4");
  EXPECT_EQ(render("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(render("{% set a, b = 1, 2 %}{{ a }}{{ b }}"), "12");
  EXPECT_EQ(render("{% set x %}a{{ 1 }}{% endset %}{{ x | upper }}"), "A1");
  EXPECT_EQ(render("{% set x | upper %}a{% endset %}{% filter lower %}{{ x }}B{% endfilter %}"),
            "ab");
}

TEST(Template, MacrosReturnTheirText) {
  EXPECT_EQ(render("{% macro m(a, b='B', c=b) %}{{ a }}{{ b }}{{ c }}{{ d }}{% endmacro %}"
                   "{% set d = 'D' %}{{ m(1) }}{{ m('x', c=2) | length }}{{ m() }}"),
            "1BBD4BBD");
  EXPECT_EQ(render("{% macro m(a='A') %}[{{ a }}]{% endmacro %}{{ m(missing) }}{{ m() }}"),
            "[][A]");
  EXPECT_PRED2(contains, refusal_of("{% macro m() %}{% endmacro %}{{ m(1) }}"),
               "too many arguments");
}

TEST(Template, SlicesCountCharacters) {
  EXPECT_EQ(render("{{ x[1:] }} {{ x[:-1] }} {{ x[::-1] }} {{ x[-1] }} {{ x[9:] }}{{ x[9] }} {{ x "
                   "| length }}",
                   R"({"x": "aé😀z"})"),
            "é😀z aé😀 z😀éa z  4");
  EXPECT_EQ(render("{{ [1, 2, 3][1:] }}{{ [1, 2, 3][-2:] }}{{ [1, 2, 3][::-1] }}{{ (1, 2)[:1] }}"),
            "[2, 3][2, 3][3, 2, 1](1,)");
}

TEST(Template, CallsPythonsMethods) {
  EXPECT_EQ(render("{{ ' a '.strip() }}{{ 'a-b'.split('-') }}{{ 'x  y'.split() }}"
                   "{{ 'a</t>b</t>c'.split('</t>')[-1] }}{{ 'ab'.startswith(('x', 'a')) }}"),
            "a['a', 'b']['x', 'y']cTrue");
  EXPECT_EQ(
      render("{{ '\\n\\nx\\n'.lstrip('\\n') ~ 'x'.rstrip('x') }}{{ 'a,b,c'.rsplit(',', 1) }}"),
      "x\n['a,b', 'c']");
  EXPECT_EQ(render("{{ m.get('a') }}{{ m.get('b', 2) }}{{ m.get('c') }}{{ m.keys() | list }}",
                   R"({"m": {"a": 1}})"),
            "12None['a']");
  EXPECT_EQ(render("{{ 'ab'.replace('b', 'c') }}{{ 'a'.upper() }}{{ 'x'.join(['1', '2']) }}"
                   "{{ '{}-{a}'.format(1, a=2) }}{{ '%s-%d' % ('a', 3) }}"),
            "acA1x21-2a-3");
}

TEST(Template, FiltersValues) {
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": {"b": [1, 2.0, "é\"<"], "a": null}})"),
            R"({"b": [1, 2.0, "é\"<"], "a": null})");
  EXPECT_EQ(render("{{ x | tojson(indent=2) }}", R"({"x": {"b": [1], "c": [], "d": {}}})"),
            "{\n  \"b\": [\n    1\n  ],\n  \"c\": [],\n  \"d\": {}\n}");
  EXPECT_EQ(render("{{ x | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}",
                   R"({"x": {"b": "é😀", "a": true}})"),
            R"({"a":true,"b":"\u00e9\ud83d\ude00"})");
  EXPECT_EQ(render("{{ xs | map(attribute='n') | join(',') }} {{ xs | selectattr('n', 'gt', 1) | "
                   "list | length }}"
                   " {{ xs | rejectattr('n', 'equalto', 1) | map('string') | first }}",
                   R"({"xs": [{"n": 1}, {"n": 2}]})"),
            "1,2 1 {'n': 2}");
  EXPECT_EQ(render("{{ missing | default('d') }}{{ '' | default('e', true) }}{{ [3, 1] | sort }}"
                   "{{ {'b': 1, 'A': 2} | dictsort }}{{ ' x ' | trim }}{{ 'ab' | last }}"
                   "{{ [1, 1, 2] | unique | list }}{{ 'a\\nb' | indent(2) }}"),
            "de[1, 3][('A', 2), ('b', 1)]xb[1, 2]a\n  b");
  EXPECT_EQ(render("{% if [] | selectattr('a') %}a generator is true{% endif %}"),
            "a generator is true");
}

TEST(Template, Tests) {
  EXPECT_EQ(render("{{ x is string }}{{ x is mapping }}{{ x is iterable }}{{ y is not defined }}"
                   "{{ none is none }}{{ 1 is number }}{{ true is boolean }}{{ [] is sequence }}"
                   "{{ 2 is divisibleby 2 }}{{ 'a' is in ['a'] }}{{ false is false }}",
                   R"({"x": "s"})"),
            "TrueFalseTrueTrueTrueTrueTrueTrueTrueTrueTrue");
  EXPECT_EQ(render("{{ 'a' in 'ab' }}{{ 'k' in {'k': 1} }}{{ 3 not in [1, 2] }}{{ 1 < 2 < 3 }}"
                   "{{ 'a' in missing }}"),
            "TrueTrueTrueTrueFalse");
}

TEST(Template, BindsAsJinja) {
  EXPECT_EQ(render("{{ 1 + 2 * 3 }}{{ 2 ** 3 }}{{ 7 // 2 }}{{ -7 % 3 }}{{ -1 | abs }}"
                   "{{ 'a' ~ 1 + 1 if false else 'c' }}{{ not 1 == 2 }}"),
            "783"
            "21cTrue");
  EXPECT_EQ(render("{{ 1 if false }}{{ {'a': {'b': 1}}['a']['b'] }}"), "1");
  EXPECT_EQ(render("{{ 'a' 'b' }}{{ '\\x41\\u00e9\\101' }}{{ \"\\d\" }}"), "abAéA\\d");
}

TEST(Template, MarksWhatIsGenerated) {
  const Template chat(
      "{% for m in ms %}<{{ m }}>{% generation %}é{{ m }}{% endgeneration %}{% endfor %}",
      "t.jinja");
  EXPECT_TRUE(chat.has_generation());
  const auto rendered = chat.render(*value_of_json(R"({"ms": [1, 2]})").dict());
  EXPECT_EQ(rendered.text, "<1>é1<2>é2");
  ASSERT_EQ(rendered.generated.size(), 2U);
  EXPECT_EQ(rendered.text.substr(rendered.generated[1].begin,
                                 rendered.generated[1].end - rendered.generated[1].begin),
            "é2");
}

TEST(Template, KnowsTheTime) {
  const std::time_t noon = 1'700'000'000;
  std::tm local{};
  localtime_r(&noon, &local);
  char expected[32];
  const size_t size = std::strftime(expected, sizeof(expected), "%d %b %Y", &local);
  EXPECT_EQ(Template("{{ strftime_now('%d %b %Y') }}", "t").render({}, {.now = noon}).text,
            std::string(expected, size));
}

TEST(Template, NamesLineAndReason) {
  EXPECT_EQ(refusal_of("a\n{{ raise_exception('roles must alternate') }}"),
            "t.jinja:2: the template refuses this conversation: roles must alternate");
  EXPECT_EQ(refusal_of("\n\n{{ x.y.z }}", R"({"x": {}})"), "t.jinja:3: 'y' is undefined");
  EXPECT_EQ(refusal_of("{{ x | frobnicate }}"), "t.jinja:1: the filter 'frobnicate' is unknown");
  EXPECT_EQ(refusal_of("{{ x is odder }}"), "t.jinja:1: the test 'is odder' is unknown");
  EXPECT_EQ(refusal_of("{{ frob(1) }}"),
            "t.jinja:1: 'frob' is undefined: there is no such function");
  EXPECT_PRED2(contains, refusal_of("{{ 'x'.casefold() }}"), "a string has no method 'casefold'");
  EXPECT_PRED2(contains, refusal_of("\n{% include 'x' %}"), "t.jinja:2: {% include %} is unknown");
  EXPECT_PRED2(contains, refusal_of("{{ [].append(1) }}"), "append would change a list");
  EXPECT_EQ(refusal_of("{{ 'a' + 1 }}"), "t.jinja:1: '+' between a string and an integer");
  EXPECT_EQ(refusal_of("{% if x %}\n"), "t.jinja:1: {% endif %} is missing");
  EXPECT_EQ(refusal_of("{{ x"), "t.jinja:1: '}}' is missing");
  EXPECT_EQ(refusal_of("{% set x.y = 1 %}", R"({"x": {}})"),
            "t.jinja:1: 'x' is not a namespace(): its attributes cannot be set");
}

}  // namespace
}  // namespace skein::text::jinja
