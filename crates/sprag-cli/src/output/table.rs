//! [`Table`]: columns that line up.

use super::plain::one_line;

/// Rows of text under a heading, each column as wide as it has to be.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table that begins with its heading.
    pub(crate) fn new<'a>(heading: impl IntoIterator<Item = &'a str>) -> Self {
        Self { rows: vec![heading.into_iter().map(str::to_owned).collect()] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| one_line(cell).into_owned()).collect());
    }

    /// The lines, without spaces at their ends.
    pub(crate) fn lines(&self) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let wide = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(wide).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["NAME", "TOKEN"]);
        table.row(vec!["deploy".into(), "1".into()]);
        table.row(vec!["é".into(), "22".into()]);
        assert_eq!(table.lines(), ["NAME    TOKEN", "deploy  1", "é       22"]);
    }
}
