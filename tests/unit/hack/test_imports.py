"""Modules do not import each other in circles, not even inside functions."""

import grimp


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("torchctl", exclude_type_checking_imports=True)
    edges = ((module, used) for module in graph.modules for used in graph.find_modules_directly_imported_by(module))
    circles = [chain for module, used in edges if (chain := graph.find_shortest_chain(used, module))]
    assert circles == []
