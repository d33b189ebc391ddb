//! A page of Markdown, as far as the tests check it: spans and blocks of code, links, headings.

use std::fs;

use super::repository::checkout;

pub struct Block {
    /// The language after the fence. Empty for an indented block.
    pub language: String,
    /// The lines of the block. If the block is in a list, the indentation of the list is removed.
    pub text: String,
}

pub struct Page {
    /// The page's path in the repository.
    pub name: String,
    pub text: String,
    /// Code spans in the prose and the tables of the page.
    pub spans: Vec<String>,
    /// Code blocks of the page. Each indented line counts as a block. This does no harm, because only lines that
    /// begin with a program are checked.
    pub blocks: Vec<Block>,
    /// Targets of the page's links and pictures.
    pub links: Vec<String>,
    pub anchors: Vec<String>,
    /// The first cell of each table row on the page.
    pub first_cells: Vec<String>,
}

/// README.md, CONTRIBUTING.md, SECURITY.md, and all pages in `docs`.
pub fn pages() -> Vec<Page> {
    let mut names: Vec<String> = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).into();
    for folder in ["docs", "docs/install"] {
        for entry in fs::read_dir(checkout().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.sort();
    names.iter().map(|name| Page::read(name)).collect()
}

impl Page {
    pub fn read(name: &str) -> Page {
        Page::parse(name, &fs::read_to_string(checkout().join(name)).unwrap())
    }

    pub fn parse(name: &str, text: &str) -> Page {
        let mut page = Page {
            name: name.to_owned(),
            text: text.to_owned(),
            spans: vec![],
            blocks: vec![],
            links: vec![],
            anchors: vec![],
            first_cells: vec![],
        };
        let mut prose = String::new();
        let mut fence: Option<Block> = None;
        for line in text.lines() {
            let trimmed = line.trim();
            match (&mut fence, trimmed.strip_prefix("```")) {
                (Some(_), Some(_)) => page.blocks.extend(fence.take()),
                (Some(block), None) => block.text.push_str(&format!("{line}\n")),
                (None, Some(language)) => {
                    fence = Some(Block { language: language.to_owned(), text: String::new() });
                }
                (None, None) if line.starts_with("    ") => {
                    page.blocks.push(Block { language: String::new(), text: format!("{trimmed}\n") });
                }
                (None, None) => {
                    if let Some(heading) = trimmed.strip_prefix('#') {
                        page.anchors.push(anchor(heading.trim_start_matches('#')));
                    }
                    if trimmed.starts_with('|') {
                        page.first_cells.extend(first_cell(trimmed));
                    }
                    prose.push_str(trimmed);
                    // A span may continue in the next line, but not beyond the end of its paragraph.
                    prose.push(if trimmed.is_empty() || trimmed.ends_with('|') { '\n' } else { ' ' });
                }
            }
        }
        assert!(fence.is_none(), "{name}: a block of code does not end");
        for paragraph in prose.split('\n') {
            let mut parts = paragraph.split('`');
            let mut outside = parts.next().unwrap_or_default().to_owned();
            while let (Some(span), Some(rest)) = (parts.next(), parts.next()) {
                page.spans.push(span.replace("\\|", "|").trim().to_owned());
                outside.push_str("code");
                outside.push_str(rest);
            }
            page.links.extend(links(&outside));
        }
        page
    }

    /// All code on the page: spans and blocks, one a line.
    pub fn code(&self) -> String {
        let blocks = self.blocks.iter().map(|block| block.text.as_str());
        self.spans.iter().map(String::as_str).chain(blocks).flat_map(|code| [code, "\n"]).collect()
    }

    /// Paths of the pages to which this page links.
    pub fn linked_pages(&self) -> Vec<String> {
        let folder = self.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = |link: &String| {
            let target = link.split('#').next().unwrap_or_default();
            let joined = std::path::Path::new(folder).join(target);
            let mut parts: Vec<&str> = vec![];
            for part in joined.to_str().unwrap().split('/') {
                match part {
                    "." | "" => {}
                    ".." => drop(parts.pop()),
                    _ => parts.push(part),
                }
            }
            parts.join("/")
        };
        self.links.iter().filter(|link| !link.contains("://")).map(path).collect()
    }
}

fn first_cell(row: &str) -> Option<String> {
    let row = row.trim_start_matches('|').replace("\\|", "\u{1}");
    let cell = row.split('|').next()?.replace('\u{1}', "|");
    Some(cell.trim().to_owned())
}

/// The targets of `[text](target)` and `src="target"` in `text`.
fn links(text: &str) -> Vec<String> {
    let mut links: Vec<String> =
        text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect();
    links.extend(text.split("src=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    links
}

/// The anchor that GitHub makes of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().replace(' ', "-")
}
